#!/bin/sh
# run.sh - everything that is to be checked and timed on a machine with a GPU, in stages; builds nothing.
#
#     sh spec/bench/gpu/run.sh [--toy] [--out DIR] [--bound SECONDS] [first | STAGE...]
#
# first: for a GPU that nothing of this has run on: facts smoke suite rates timed64 profile gpt64 attention sanitize.
#
# Stages, each with a time limit of its own (seconds), in the order in which they are run when none is named:
#     facts      60   what the machine is and has: GPU, clocks, power, ECC, driver, libraries, doctor, PyTorch
#     smoke     180   the same bits twice? products of GPT-2, timed; then ops against the reference, failures first
#     rates      90   products of 8,192 in bf16, f32, TF32, and copies: what all other figures are judged by
#     gpt32     300   GPT-2 124M in bf16, batch 32 x 1,024, in turn with PyTorch: tokens, MFU, calls and joules a step
#     gpt64     300   the same with batch 64
#     chunk64   120   ours alone with batch 64 and the head in pieces of 8,192 rows
#     timed64   120   ours alone with batch 64 and the fastest of cuBLASLt's ways (time_products)
#     profile   120   what each op of that step costs (ganymede run --profile)
#     attention 240   attention forward and backward against PyTorch's SDPA
#     float8    120   dense layers of 8 bits beside those of bf16: products, rounding, forward and backward
#     images    120   steps of ResNet-18 in turn with PyTorch, and what each of its ops costs
#     kernels   120   each memory-bound op's share of the copy bandwidth, the worst first
#     long      240   1,000 steps: does anything grow?
#     ranks     240   1, 2, 4 and 8 ranks on one GPU, messages through host memory; NCCL with 1 rank: equal losses?
#                     on several GPUs: a rank on each, steps one by one and as graphs: the same bits, seconds
#     curves    300   the loss in bf16 beside f32, and f32 with other data as the noise
#     suite     420   the op suite against the reference per dtype, spec/cuda
#     layers    420   specs of layers, training and resuming with --device cuda
#     sanitize  420   compute-sanitizer's memcheck and racecheck over files of the op suite, as far as the time goes
#
# --bound: of all stages together; one that would begin later is left out, and said so. A stage that fails or runs out
# of time does not stop the next. DIR (default: gpu-results) gets results.json, table.txt and logs.tar, brought up to
# date after every stage. --toy: tiny sizes, for a machine without a GPU: the caller names an emulation
# (GANYMEDE_CUDA_DRIVER). GANYMEDE_BIN: the program (default: the packed ./ganymede, else build/ganymede); PYTHON: a
# Python with PyTorch (default: python3). Ends with 0 when every stage did, 1 when one did not.
set -u
top=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd -P)
here=$top/spec/bench/gpu
usage() { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }
all='facts smoke rates gpt32 gpt64 chunk64 timed64 profile attention float8 images kernels long ranks curves'
all="$all suite layers sanitize"
first='facts smoke suite rates timed64 profile gpt64 attention sanitize'
out=gpu-results stages='' bound=1000000 toy=
while [ $# -gt 0 ]; do
    case $1 in
    --toy) toy=1 ;;
    --out) [ $# -ge 2 ] || usage; out=$2; shift ;;
    --bound) [ $# -ge 2 ] || usage; bound=$2; shift ;;
    first) stages="$stages $first" ;;
    -*) usage ;;
    *)
        case " $all " in
        *" $1 "*) stages="$stages $1" ;;
        *) printf 'run.sh: no stage %s; there are: %s\n' "$1" "$all" >&2; exit 2 ;;
        esac ;;
    esac
    shift
done

# ---- the program, its libraries, the peer

export GANYMEDE_ROOT="$top"
if [ -n "${GANYMEDE_BIN:-}" ]; then gm=$GANYMEDE_BIN
elif [ -d "$top/lib" ] && [ -x "$top/build/ganymede" ]; then gm=$top/ganymede
else gm=$top/build/ganymede
fi
[ -x "$gm" ] || { printf 'run.sh: there is no %s; build it, or name it in GANYMEDE_BIN\n' "$gm" >&2; exit 2; }

# The folders of the driver, cuBLASLt, cuDNN and NCCL. Those that came with PyTorch are the first, so that ours and the
# peer use the same; then those that the loader finds by itself, a container's and the toolkit's.
find_libraries() {
    ask='import site; print("\n".join(place + "/nvidia" for place in site.getsitepackages()))'
    places=$({ [ -z "$python" ] || "$python" -c "$ask"; } 2>/dev/null)
    for name in libcuda.so.1 libnvidia-ml.so.1 libcublasLt.so.13 libcudnn_graph.so.9 libnccl.so.2; do
        for place in $places loader /usr/local/nvidia /usr/local/cuda/lib64; do
            if [ $place = loader ]; then
                ldconfig -p 2>/dev/null | grep -q "$name" && break
                continue
            fi
            found=$(find -L "$place" -name "$name" 2>/dev/null | head -n 1)
            [ -z "$found" ] || { printf '%s:' "$(dirname -- "$found")"; break; }
        done
    done
}

# A stage is a process of its own (this script again, with GM_BENCH_STAGE), so that `timeout` ends all that it started.
if [ -z "${GM_BENCH_STAGE:-}" ]; then
    mkdir -p "$out" || exit 1
    out=$(CDPATH='' cd -- "$out" && pwd -P)
    work=$(mktemp -d "${TMPDIR:-/tmp}/gpu-bench-XXXXXX") || exit 1
    trap 'rm -rf "$work"' EXIT
    mkdir "$work/log"
    python=$(command -v "${PYTHON:-python3}") && "$python" -c 'import torch' 2>/dev/null || python=
    libraries=$(find_libraries)
    export GM_BENCH_PEER_LIBRARIES="${LD_LIBRARY_PATH:-}" # PyTorch brings its own, which ours must not replace
    [ -z "$libraries" ] || export LD_LIBRARY_PATH="${libraries%:}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export GM_BENCH_WORK="$work" GM_BENCH_TOY="$toy" GM_BENCH_PYTHON="$python" GM_BENCH_LIBRARIES="$libraries"
fi
work=$GM_BENCH_WORK python=$GM_BENCH_PYTHON

cuda() { "$gm" run "$@" --device cuda --no-eval --out "$work/run-$$-$(date +%s%N)"; }

# ---- stages

stage_facts() {
    if command -v nvidia-smi >/dev/null 2>&1; then
        nvidia-smi
        nvidia-smi --format=csv --query-gpu=name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.draw
        nvidia-smi --format=csv --query-gpu=power.limit,ecc.mode.current,temperature.gpu,memory.total,memory.used,pstate
    else
        echo 'there is no nvidia-smi here'
    fi
    uname -srm
    getconf GNU_LIBC_VERSION 2>/dev/null
    echo "libraries before the usual places: ${GM_BENCH_LIBRARIES:-none}"
    if [ -n "$python" ]; then
        "$python" -c 'import sys, torch; print(sys.version.split()[0], "PyTorch", torch.__version__)'
    else echo 'there is no Python with PyTorch here: ours is timed alone'
    fi
    "$gm" doctor --out "$work" --json >"$work/doctor.json"
    "$gm" doctor --out "$work"
}

stage_rates() { "$gm" run "$here/rates.lua" --device cuda; }
# Ours and the peer's hold their memory side by side: both modes of the peer fit with batch 32.
stage_gpt32() { cuda "$here/gpt.lua" --set "data.batch_size=$(size 32 4)"; }
stage_gpt64() { GM_BENCH_PEERS=autocast cuda "$here/gpt.lua" --set "data.batch_size=$(size 64 8)"; }

stage_chunk64() {
    GM_BENCH_PEERS='' cuda "$here/gpt.lua" --set "data.batch_size=$(size 64 8)" --set "model.head_chunk=$(size 8192 32)"
}

stage_timed64() {
    GM_BENCH_PEERS='' cuda "$here/gpt.lua" --set "data.batch_size=$(size 64 8)" --set time_products=true
}

stage_profile() {
    GM_BENCH_PLAIN=1 cuda "$here/gpt.lua" --set "data.batch_size=$(size 64 8)" --steps "$(size 24 6)" \
        --profile "$work/profile.json" || return 1
    GM_BENCH_JUDGE=profile "$gm" run "$here/report.lua"
}

stage_attention() { "$gm" run "$here/attention.lua" --device cuda; }
stage_float8() { "$gm" run "$here/float8.lua" --device cuda; }
stage_images() { "$gm" run "$here/images.lua" --device cuda; }
stage_kernels() { "$gm" run "$here/kernels.lua" --device cuda; }
stage_long() { cuda "$here/long.lua"; }

# The same steps with a rank on each of several devices, which talk through NCCL: one by one, and as graphs.
ranks_as_graphs() {
    count=$(size "$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')" 2)
    [ "$count" -ge 2 ] || return 0
    [ "$count" -le 8 ] || count=8
    for graphs in false true; do
        (
            export GANYMEDE_CUDA_DEVICES="$count" # of the emulation
            cuda "$here/long.lua" -n "$count" --threads 1 --steps "$(size 100 6)" --comm-timeout 60 \
                --set parallel.transport=nccl --set graph="$graphs" --stats "$work/ranks-graphs-$graphs.json"
        ) || return 1
    done
}

# The same twenty steps on 1, 2, 4, 8 ranks that share the device.
stage_ranks() {
    for n in $(size '1 2 4 8' '1 2'); do
        cuda "$here/long.lua" -n "$n" --threads 1 --steps "$(size 20 4)" --comm-timeout 60 \
            --stats "$work/ranks-$n.json" || return 1
    done
    "$gm" spec --device cuda spec/cuda/link_spec.lua || return 1 # NCCL, with the one rank that one GPU allows
    ranks_as_graphs || return 1
    GM_BENCH_JUDGE=ranks "$gm" run "$here/report.lua"
}

stage_curves() {
    cat "$top"/lua/ganymede/*.lua "$top"/lua/ganymede/*/*.lua >"$work/text"
    for case in bf16:1 f32:1 f32:2; do
        cuda "$here/curve.lua" --set "dtype=${case%:*}" --seed "${case#*:}" \
            --stats "$work/curve-${case%:*}-${case#*:}.json" || return 1
    done
    GM_BENCH_JUDGE=curves "$gm" run "$here/report.lua"
}

# Specs on the device, a process a file, so many at once: after an illegal address nothing of its process works.
# Failures come first. apart STAGE DEVICE PROCESSES FILE...   (the device of the specs' tensors)
apart() {
    export GANYMEDE_CUDA_SUITE=only gm work name="$1" device="$2"
    processes=$3 bad=0
    shift 3
    printf '%s\n' "$@" | xargs -n 1 -P "$processes" sh -c '
        log=$work/log/$name-$(printf %s "${1#spec/}" | tr / -)
        "$gm" spec --device "$device" --threads 1 "$1" >"$log" 2>&1
        printf "%s %s %s\n" $? "$1" "$log" >>"$work/$name"' sh
    while read -r status file log; do
        [ "$status" = 0 ] || { bad=1; echo "== $file ended with status $status"; cat "$log"; }
    done <"$work/$name"
    cat "$work/log/$name-"*_spec.lua | awk '/^[0-9]+ passed, [0-9]+ failed/ {
        split($0, n, /[^0-9]+/); p += n[1]; f += n[2]; s += n[3] }
        END { printf "%d passed, %d failed%s\n", p, f, s ? ", " s " skipped" : "" }'
    return $bad
}

# cuBLASLt's own log names its algorithms: it is kept with the logs.
stage_smoke() {
    bits=0
    CUBLASLT_LOG_LEVEL=2 CUBLASLT_LOG_FILE="$work/log/cublaslt" "$gm" run "$here/smoke.lua" --device cuda || bits=1
    apart smoke cpu "$(size 12 1)" \
        $(size "$(cd "$top" && ls spec/kernels/*_spec.lua)" spec/kernels/loss_spec.lua) || bits=1
    return $bits
}

# What smoke has run already is not run again.
stage_suite() {
    files=$(size "$(cd "$top" && ls spec/kernels/*_spec.lua spec/cuda/*_spec.lua)" spec/kernels/loss_spec.lua)
    if [ -e "$work/smoke" ]; then files=$(size "$(cd "$top" && ls spec/cuda/*_spec.lua)" spec/kernels/loss_spec.lua); fi
    apart suite cpu "$(size 12 1)" $files
}

# On as many ranks as each file says.
stage_layers() {
    all=$(cd "$top" && ls spec/golden/*_spec.lua spec/nn/*_spec.lua spec/autograd/*_spec.lua spec/optim/*_spec.lua \
        spec/train/*_spec.lua spec/resume/*_spec.lua spec/checkpoint/*_spec.lua spec/models/*_spec.lua \
        spec/parallel/*_spec.lua spec/sequence/*_spec.lua spec/comm/collectives_spec.lua spec/layout/*_spec.lua \
        spec/tensor/*_spec.lua)
    apart layers cuda "$(size 6 1)" $(size "$all" spec/nn/containers_spec.lua)
}

# One file after the other, so that a time limit leaves what was found before; it suffices for four or more. Lines: tool
# file verdict.
stage_sanitize() {
    command -v compute-sanitizer >/dev/null 2>&1 || PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer
    if ! command -v compute-sanitizer >/dev/null 2>&1; then
        echo 'there is no compute-sanitizer here: nothing was checked' | tee "$work/sanitize"
        return 0
    fi
    bad=0 new='grouped float8_blocks float8 experts attention_drop' # whose kernels no GPU had run as they are now
    set --
    for name in $new; do set -- "$@" "$top/spec/kernels/${name}_spec.lua"; done
    for file in "$top"/spec/kernels/*_spec.lua; do
        name=${file##*/}
        case " $new " in *" ${name%_spec.lua} "*) ;; *) set -- "$@" "$file" ;; esac
    done
    for file; do
        for tool in memcheck racecheck; do
            GANYMEDE_CUDA_SUITE=only timeout -k 5 "$(size 60 30)" compute-sanitizer --tool "$tool" --error-exitcode 9 \
                --target-processes all "$gm" spec "$file" >"$work/log/sanitize-$tool-${file##*/}" 2>&1
            case $? in 0) verdict=clean ;; 124 | 137) verdict='out of time' ;; *) verdict=ERRORS bad=1 ;; esac
            echo "$tool ${file##*/} $verdict" | tee -a "$work/sanitize"
        done
    done
    return $bad
}

# ---- running them

size() { if [ -n "$toy" ]; then echo "$2"; else echo "$1"; fi; }

limit() { sed -n "s/^#     $1 *\([0-9][0-9]*\) .*/\1/p" "$0" | head -n 1; }

# What there is so far, in few files, one folder deep.
collect() {
    "$gm" run "$here/report.lua" >"$work/table.txt" 2>"$work/log/report" || cat "$work/log/report" >&2
    for file in results.json table.txt; do [ ! -e "$work/$file" ] || cp -- "$work/$file" "$out/"; done
    tar -C "$work" -cf "$out/logs.tar" log 2>/dev/null
}

if [ -n "${GM_BENCH_STAGE:-}" ]; then
    cd "$top" || exit 1
    "stage_$GM_BENCH_STAGE"
    exit $?
fi

began=$(date +%s) failed=0
for stage in ${stages:-$all}; do
    now=$(date +%s)
    if [ $((now - began)) -ge "$bound" ]; then
        echo "$stage 0 left-out" >>"$work/stages"
        printf '== %s: left out, %s seconds are over\n' "$stage" "$bound"
        continue
    fi
    seconds=$(limit "$stage") left=$((bound - now + began))
    [ "$seconds" -le "$left" ] || seconds=$left
    printf '== %s, at most %s seconds\n' "$stage" "$seconds"
    # A pipeline ends with the status of its last command: the stage's own goes through a file.
    { GM_BENCH_STAGE=$stage timeout -k 10 "$seconds" sh "$0" ${toy:+--toy} --out "$out" 2>&1
      echo $? >"$work/status"; } | tee "$work/log/$stage" | tail -n 25
    status=$(cat "$work/status")
    echo "$stage $(($(date +%s) - now)) $status" >>"$work/stages"
    [ "$status" = 0 ] || { failed=1; printf '== %s ended with status %s%s\n' "$stage" "$status" \
        "$([ "$status" != 124 ] || echo ': out of time')"; }
    collect
done
cat "$out/table.txt"
exit $failed
