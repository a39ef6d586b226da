"""Examples of all commands, for their help."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "": (
        "tracedock upload rank*.json.gz --group run-7",
        "tracedock analyze run-7 collectives",
        "tracedock query latest 'SELECT name, dur FROM slice ORDER BY dur DESC LIMIT 5'",
        "tracedock open latest",
    ),
    "upload": (
        "tracedock upload rank*.json.gz --group run-7",
        "ID=$(tracedock upload trace.json.gz)",
        "ssh node1 cat trace.json.gz | tracedock upload - --name node1.json.gz",
    ),
    "import": (
        "tracedock import '/data/run-7/*.json.gz' --group run-7",
        "tracedock import /data/run-7 --watch",
    ),
    "ls": (
        "tracedock ls --state failed",
        "tracedock ls --name rank0 --limit 5",
        "tracedock ls --json | jq -r '.[].id'",
    ),
    "show": ("tracedock show latest", "tracedock show 9f2c --json"),
    "download": (
        "tracedock download latest",
        "tracedock download latest --steps 3 --output step3.json.gz",
        "tracedock download ./rank0.json.gz --names 'nccl*' --output - | gzip -dc",
    ),
    "rm": ("tracedock rm 9f2c 0a1b", "tracedock rm latest --yes"),
    "groups": ("tracedock groups", "tracedock groups show run-7"),
    "groups show": ("tracedock groups show run-7",),
    "groups merge": ("tracedock groups merge run-7 --name run-7.json.gz",),
    "groups rm": ("tracedock groups rm run-7", "tracedock groups rm run-7 --traces --yes"),
    "analyze": (
        "tracedock analyze latest",
        "tracedock analyze latest kernel_breakdown --steps 3",
        "tracedock analyze run-7 collectives --json",
        "tracedock analyze ./after.json.gz compare --base ./before.json.gz",
    ),
    "report": (
        "tracedock report latest",
        "tracedock report run-7 --output run-7.html",
        "tracedock report ./rank0.json.gz --with ./rank1.json.gz --output run.md",
    ),
    "query": (
        "tracedock query latest 'SELECT count(*) FROM slice'",
        "tracedock query latest --file kernels.sql --format csv --output kernels.csv",
        "tracedock query latest - < kernels.sql",
    ),
    "open": ("tracedock open latest --browser", "tracedock open latest --steps 3"),
    "split": (
        "tracedock split latest --by step",
        "tracedock split latest --by size --value 100MB --dry-run",
        "tracedock split ./rank0.json.gz --by step --output steps",
    ),
    "merge": (
        "tracedock merge rank0.json.gz rank1.json.gz",
        "tracedock merge ./rank0.json.gz ./rank1.json.gz --output run.json.gz",
    ),
    "serve": ("tracedock serve", "tracedock serve --port 8800 --data /var/lib/tracedock"),
    "doctor": ("tracedock doctor",),
    "jobs": ("tracedock jobs --state running", "tracedock jobs follow 12"),
    "jobs show": ("tracedock jobs show 12",),
    "jobs follow": ("tracedock jobs follow 12",),
    "jobs cancel": ("tracedock jobs cancel 12",),
    "sessions": ("tracedock sessions", "tracedock sessions close latest"),
    "sessions close": ("tracedock sessions close latest",),
    "imports": ("tracedock imports", "tracedock imports end 3"),
    "imports end": ("tracedock imports end 3",),
    "token": ("tracedock token add laptop --scope write",),
    "token add": ("export TRACEDOCK_TOKEN=$(tracedock token add laptop --scope write)",),
    "token ls": ("tracedock token ls",),
    "token rm": ("tracedock token rm laptop",),
    "completion": (
        "tracedock completion bash > ~/.local/share/bash-completion/completions/tracedock",
        "tracedock completion zsh > ~/.zfunc/_tracedock",
        "tracedock completion fish > ~/.config/fish/completions/tracedock.fish",
    ),
}
"""Command lines by command; the empty key has those of the whole program."""
