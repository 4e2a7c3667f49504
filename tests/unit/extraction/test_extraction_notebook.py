import json

import pytest

from app.extraction.contract import Corrupt
from app.extraction.notebook import read_notebook


def test_prose_code_and_text_outputs_become_markdown() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "words"]},
        {
            "cell_type": "code",
            "source": "print(1)",
            "outputs": [
                {"output_type": "stream", "text": ["1\n"]},
                {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo", "text/plain": "<Figure>"}},
                {"output_type": "error", "ename": "ValueError", "evalue": "bad", "traceback": ["\x1b[31mlong\x1b[0m"]},
            ],
        },
    ]
    notebook = {"cells": cells, "metadata": {"kernelspec": {"language": "python"}}, "nbformat": 4}

    read = read_notebook(json.dumps(notebook))

    assert read.markdown
    assert read.text == (
        "# Title\nwords\n\n```python\nprint(1)\n```\n\n```\n1\n```\n\n```\n<Figure>\n```\n\n```\nValueError: bad\n```"
    )


def test_the_old_format_with_worksheets_is_read() -> None:
    cells = [{"cell_type": "heading", "level": 2, "source": "Part"}, {"cell_type": "code", "input": "x", "outputs": []}]

    assert read_notebook(json.dumps({"worksheets": [{"cells": cells}]})).text == "## Part\n\n```\nx\n```"


def test_a_fence_inside_the_code_is_outdone() -> None:
    cells = [{"cell_type": "code", "source": "```\nfenced\n```"}]

    assert read_notebook(json.dumps({"cells": cells})).text == "````\n```\nfenced\n```\n````"


@pytest.mark.parametrize("source", ["", "{", "[]", '{"cells": 3}', "[" * 200_000])
def test_what_is_no_notebook_is_corrupt(source: str) -> None:
    with pytest.raises(Corrupt):
        read_notebook(source)
