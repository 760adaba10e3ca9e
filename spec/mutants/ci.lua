--- Mutants of what CI chooses to build (.ci/base, .ci/kernels) and to run under sanitizers, and of a reference that
-- was made faster for it (table.lua).
return {
  {
    name = "2490-lists-are-code", file = ".ci/kernels",
    find = [[why = $i ~ /[.]def$/ ? "lists" : "code"]],
    replace = [[why = "code"]],
    breaks = "a line of a list has kernels compiled for all GPUs",
    test = "spec/tree/kernels_spec.lua -f 'tells lists'",
  },
  {
    name = "2491-new-kernels-are-left-out", file = ".ci/kernels",
    find = [[; git ls-files --others --exclude-standard -- kernels)]],
    replace = [[)]],
    breaks = "a kernel that is not committed is not compiled",
    test = "spec/tree/kernels_spec.lua -f 'what is new'",
  },
  {
    name = "2492-lists-stay-lists", file = ".ci/kernels",
    find = [[in differs && why != "code"]],
    replace = [[in differs && why == ""]],
    breaks = "a changed kernel is compiled for one GPU if how kernels are compiled has changed, too",
    test = "spec/tree/kernels_spec.lua -f both",
  },
  {
    name = "2493-registers-do-not-count", file = ".ci/kernels",
    find = [[|registers[.]awk)]],
    replace = [[|registers)]],
    breaks = "another limit of registers compiles no kernel anew",
    test = "spec/tree/kernels_spec.lua -f both",
  },
  {
    name = "2494-paths-with-dots", file = ".ci/kernels",
    find = [[while (sub("[^/]+/[.][.]/", "", path)) continue]],
    replace = [[sub("[^/]+/[.][.]/", "", path)]],
    breaks = "a file that is included by ../../ is no part of a kernel",
    test = "spec/tree/kernels_spec.lua -f 'tells lists'",
  },
  {
    name = "2495-codes-of-8-bits-to-odd", file = "kernels/ref/float8.c",
    find = [[(up == down && above % 2 == 0)]],
    replace = [[(up == down && above % 2 == 1)]],
    breaks = "a number between two codes of 8 bits gets the odd one",
    test = "spec/kernels/float8_spec.lua -f 'every value'",
  },
  {
    name = "2530-any-last-commit", file = ".ci/base",
    find = [[&& git merge-base --is-ancestor "$base" HEAD; then]],
    replace = [[; then]],
    breaks = "a commit of another branch is the base",
    test = "spec/tree/base_spec.lua -f 'that .ci/last names'",
  },
  {
    name = "2522-every-parent-passed", file = ".ci/base",
    find = [[else echo "$base guessed"; fi]],
    replace = [[else echo "$base passed"; fi]],
    breaks = "one of several commits that came together counts as tried",
    test = "spec/tree/base_spec.lua -f 'a guess'",
  },
  {
    name = "2523-merges-are-guesses", file = ".ci/base",
    find = [[if commit_of HEAD^2 >/dev/null]],
    replace = [[if commit_of HEAD^3 >/dev/null]],
    breaks = "all kernels are compiled for what was merged",
    test = "spec/tree/base_spec.lua -f merged",
  },
  {
    name = "2524-what-differs-passed", file = ".ci/base",
    find = [=[    [[ -z $(git status --porcelain) ]] && mkdir]=],
    replace = [[    mkdir]],
    breaks = "a commit counts as passed if another text has passed",
    test = "spec/tree/base_spec.lua -f 'this cache'",
  },
  {
    name = "2525-farthest-that-passed", file = ".ci/base",
    find = [[git log --first-parent -1000]],
    replace = [[git log --reverse --first-parent -1000]],
    breaks = "the oldest commit that has passed is the base",
    test = "spec/tree/base_spec.lua -f 'this cache'",
  },
  {
    name = "2526-head-is-its-base", file = ".ci/base",
    find = [=[    if [[ $base != "$head" ]]; then
        echo "$base passed"
        exit
    fi
done]=],
    replace = [[    echo "$base passed"
    exit
done]],
    breaks = "a commit of the main branch is compared with itself, and nothing is compiled",
    test = "spec/tree/base_spec.lua -f 'a guess'",
  },
  {
    name = "2527-sanitizers-run-all-examples", file = "lua/ganymede/cli/test.lua",
    find = [[for _, pattern in ipairs(patterns) do words]],
    replace = [[for _, pattern in ipairs {} do words]],
    breaks = "under sanitizers a file runs examples that it does not name",
    test = "spec/cli/test_spec.lua -f 'names for sanitizers'",
  },
  {
    name = "2528-a-misspelt-line-leaves-out", file = "lua/ganymede/cli/test.lua",
    find = [[if said:find "^ no, %S" then]],
    replace = [[if said:find "^ no" then]],
    breaks = "a line for sanitizers that cannot be read leaves its file out",
    test = "spec/cli/test_spec.lua -f 'names for sanitizers'",
  },
  {
    name = "2529-one-pattern-alone", file = "lua/ganymede/cli/test.lua",
    find = [[list[#list + 1], at = pattern, after]],
    replace = [[list[1], at = pattern, after]],
    breaks = "of the examples that a file names for sanitizers only those of the last pattern run",
    test = "spec/cli/test_spec.lua -f 'names for sanitizers'",
  },
  {
    name = "1909-new-c-is-not-sanitized", file = ".ci/sanitized",
    find = [=[ || [[ $(new "${compiled[@]}") ]]; then]=],
    replace = [[; then]],
    breaks = "C that is not committed is not seen by the sanitizers",
    test = "spec/tree/sanitized_spec.lua -f 'something that is compiled'",
  },
  {
    name = "1910-specs-that-are-gone", file = ".ci/sanitized",
    find = [[--name-only --diff-filter=d]],
    replace = [[--name-only]],
    breaks = "the sanitizers are to run a spec that is gone",
    test = "spec/tree/sanitized_spec.lua -f gone",
  },
}
