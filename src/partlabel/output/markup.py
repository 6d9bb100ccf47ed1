"""Names in Markdown: no name can add markup."""

import re
from html import escape

# an underscore inside a word has no meaning in Markdown
_MARKUP = re.compile(r"[\\`*\[\]|~$#!]|(?<![^\W_])_|_(?![^\W_])")


def escape_markdown(text: str) -> str:
    r"""Text that Markdown shows as it is, on one line.

    >>> print(escape_markdown("<b> [a](b) *c* _d_ e_f"))
    &lt;b&gt; \[a\](b) \*c\* \_d\_ e_f
    """
    line = " ".join(text.splitlines())
    return _MARKUP.sub(r"\\\g<0>", escape(line, quote=False))
