#!/bin/sh
# startup.sh - milliseconds from the command to its end, for commands that do next to nothing.
#
#     sh spec/bench/startup.sh [ganymede]      default: build/ganymede
#
# Each is run 20 times; the least and the middle of the times are printed. `luajit -e ""` is the floor.
set -eu
top=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
ganymede=${1:-$top/build/ganymede}
GANYMEDE_ROOT=$top
export GANYMEDE_ROOT
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo 'require("ganymede").zeros({ 2, 2 }):sum():item()' >"$work/sum.lua"

measure() {
    name=$1
    shift
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        begin=$(date +%s%N)
        "$@" >/dev/null 2>&1
        end=$(date +%s%N)
        echo $(((end - begin) / 1000))
    done | sort -n | awk -v name="$name" '{ t[NR] = $1 } END { printf "%-34s least %6.1f ms  middle %6.1f ms\n", name,
        t[1] / 1000, t[int((NR + 1) / 2)] / 1000 }'
}

command -v luajit >/dev/null && measure 'luajit -e ""' luajit -e ""
measure 'ganymede version' "$ganymede" version
measure 'ganymede run (one sum)' "$ganymede" run "$work/sum.lua"
measure 'ganymede run fit_line (200 steps)' "$ganymede" run "$top/recipes/fit_line.lua"
