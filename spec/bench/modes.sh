#!/usr/bin/env bash
# modes.sh - spec/bench/modes.lua in every mode on 1, 4 and 8 ranks, one line each.
#
#     spec/bench/modes.sh [mlp|block] [PROGRAM]         # default: mlp, build/ganymede
#
# Peer figures for mlp, Colossal-AI 0.1.10 over gloo, one thread a rank on two cores (another machine: compare ratios
# to the one-rank line): milliseconds a step and elements sent a rank, forward and backward together: 1D on 4 ranks 117
# and 1,572,864; 2D on 4 163 and 3,538,944; 1D on 8 205 and 1,835,008; 2.5D on 8 332 and 3,538,944 (every depth layer
# repeats the work of the others); 3D on 8 201 and 1,835,008.
set -eu
cd -- "$(dirname -- "$0")/../.."
layer=${1:-mlp} program=${2:-build/ganymede}

line() {
    local ranks=$1 parallel=$2
    "$program" run spec/bench/modes.lua -n "$ranks" --threads 1 --set "parallel=$parallel" --set "layer=$layer"
}

"$program" run spec/bench/modes.lua --threads 2 --set "layer=$layer"
for ranks in 4 8; do
    line $ranks "{ data = $ranks }"
    line $ranks "{ tensor = { size = $ranks, mode = '1d' } }"
    line $ranks "{ tensor = { size = $ranks, mode = '1d', sequence = true } }"
    case $ranks in
    4) line 4 "{ tensor = { size = 4, mode = '2d' } }" ;;
    8) line 8 "{ tensor = { size = 8, mode = '2.5d', depth = 2 } }"
       line 8 "{ tensor = { size = 8, mode = '3d' } }"
       line 8 "{ tensor = { size = 8, mode = '3d', keep_gathered = true } }" ;;
    esac
    if [ "$layer" = block ]; then
        line $ranks "{ sequence = { size = $ranks, mode = 'ring' } }"
        line $ranks "{ sequence = { size = $ranks, mode = 'ulysses' } }"
    fi
done
