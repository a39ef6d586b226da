"""All tools, in the order in which clients list them."""

from service.agents.tools import analyse, compare, describe, link, list_library, query, window
from service.agents.tools.tool import Tool

TOOLS: dict[str, Tool] = {
    module.TOOL.name: module.TOOL for module in (describe, analyse, compare, window, query, list_library, link)
}
