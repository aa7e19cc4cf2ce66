"""The agent that runs are tried with: it calls a tool once, and then answers in one sentence.

A reply that reaches its limit is an error to the framework, so answers are held to a pattern.
"""

from dataclasses import replace
from typing import Literal

from agents import Agent, ModelSettings, ToolsToFinalOutputResult, function_tool

SENTENCE = "[A-Z][a-z ]{3,20}[.]"
SAYING = {"text": {"format": {"type": "grammar", "syntax": "regex", "definition": SENTENCE}}}
ONCE = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 1000}
CALLING = ModelSettings(**ONCE, extra_body=SAYING)
TALKING = ModelSettings(tool_choice="none", max_tokens=400, extra_body=SAYING)
INSTRUCTIONS = "You are a friendly weather reporter. Answer in one short sentence, always."


@function_tool
def weather(city: Literal["Oslo", "Bergen"]) -> str:
    """Says what the weather is like."""
    return f"It rains in {city}."


def reporter(model, settings=CALLING, **more):
    tools = [weather] if settings.tool_choice else []
    agent = Agent(
        name="Reporter",
        instructions=INSTRUCTIONS,
        model=model,
        model_settings=settings,
        tools=tools,
        reset_tool_choice=False,
        **more,
    )

    def answer_next(_context, _results):
        # A model of this size, left to choose, would call for ever.
        agent.model_settings = replace(settings, tool_choice="none")
        return ToolsToFinalOutputResult(is_final_output=False)

    agent.tool_use_behavior = answer_next
    return agent
