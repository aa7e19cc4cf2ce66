/** Real Markdown of every kind that the page has a style for. */

export const TIDES = `The Moon pulls on the Earth, and it pulls hardest on the side that faces it.
Water is free to move, so it gathers there in a **bulge**. On the far side there is a second one:
there the Moon's pull is weakest, and the water is *left behind* a little.

As the Earth turns, your beach passes through both bulges:

1. **High tide** when you are under a bulge,
2. **low tide** about six hours later, between the two,
3. and then the same again.

That is why most coasts see two high tides a day, each roughly **12 hours and 25 minutes** after the
last. The extra minutes come from the Moon itself, which moves on along its path meanwhile.

> Try it: hold a wet sponge on a string and swing it around you. Where does the water go?`;

export const CODE = `You can write the loop yourself, which shows what happens:

\`\`\`python
def reverse(items: list[int]) -> list[int]:
    """A new list with the items in the opposite order."""
    result: list[int] = []
    for item in items:
        result.insert(0, item)
    return result
\`\`\`

It is clear, but every \`insert(0, …)\` moves all that came before. Shorter and faster:

\`\`\`python
items[::-1]        # a copy
items.reverse()    # in place
\`\`\`

| way | makes a copy | time |
| :-- | :--: | --: |
| \`insert(0, …)\` | yes | O(n²) |
| \`items[::-1]\` | yes | O(n) |
| \`items.reverse()\` | no | O(n) |

The documentation has [more on lists](https://docs.python.org/3/tutorial/datastructures.html).`;

export const HOSTILE = `Images stay links: ![a cat](https://example.org/cat.png?q=secret)

<script>alert(1)</script> <img src=x onerror=alert(1)> [click](javascript:alert(1))

[fine](https://example.org)`;
