"""A small byte-level tokenizer, trained on the spot, with the chat template a test wants."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from sessions.chat_template import ChatTemplate
from sessions.rendering import Renderer

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# The embedded model's, which speaks for itself when nobody else gives a system message.
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Trims what is said, as many do.
TRIMMING = CHATML.replace("message['content']", "message['content'] | trim")
# Forgets the reasoning of earlier turns.
FORGETTING = CHATML.replace(
    "message['content']", "message['content'].split('</think>')[-1].lstrip('\n')"
)
# Knows two roles, which take turns, as Gemma's does.
STRICT = (
    "{{ '<s>' }}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/...') }}"
    "{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Moves the system message to the last user message, as Mistral's does.
MOVING = (
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}"
    "{% set turns = messages[1:] %}{% else %}{% set turns = messages %}{% endif %}"
    "{% for message in turns %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' }}"
    "{% if loop.last and system is defined %}{{ system + '\n\n' }}{% endif %}"
    "{{ message['content'] + ' [/INST]' }}"
    "{% else %}{{ message['content'] + '</s>' }}{% endif %}{% endfor %}"
)
# Tells the model the day.
DATED = "{{ 'Today is ' + strftime_now('%d %b %Y') + '.\n' }}" + CHATML

_CORPUS = (
    "hello world, how are you today? I am fine. user system assistant",
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
)


def make_tokenizer(chat_template: str | None) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=360,
        # The third is the end token of the fake engine: id 2.
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")
    fast.chat_template = chat_template
    return fast


def make_renderer(chat_template: str | None = CHATML) -> Renderer:
    return Renderer(ChatTemplate(make_tokenizer(chat_template)))


def save_tokenizer(folder: Path, chat_template: str | None = CHATML) -> str:
    make_tokenizer(chat_template).save_pretrained(folder)
    return str(folder)
