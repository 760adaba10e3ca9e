--- Mutants of lua/ganymede/reference/ and of what the command line writes from it: help, HTML, man page, completion.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "618-docs-argument-name", file = "lua/ganymede/reference/text.lua",
    find = [[if name then doc.params[name] = said end]],
    replace = [[if name then doc.params[1] = said end]],
    breaks = "what a comment says of an argument is lost",
    test = "spec/docs/reference_spec.lua -f 'describes every argument'",
  },
  {
    name = "619-op-text", file = "lua/ganymede/base/signature.lua",
    find = [[sig.instead, sig.doc = given.instead, given.doc]],
    replace = [[sig.instead = given.instead]],
    breaks = "the text of C functions does not reach the reference",
    test = "spec/docs/reference_ops_spec.lua -f 'gm.ops.linear'",
  },
  {
    name = "620-method-lost", file = "lua/ganymede/reference/tensors.lua",
    find = [[if by_function[fn] then add_method(by_function[fn], name) else add(method(name, fn)) end]],
    replace = [[
if by_function[fn] then return end
    add(method(name, fn))]],
    breaks = "methods of tensors that are functions of gm, too, are not in the reference",
    test = "spec/docs/reference_ops_spec.lua -f 'has all of them'",
  },
  {
    name = "621-help-short-name", file = "lua/ganymede/reference/init.lua",
    find = [=[by_name[name] or by_name["gm." .. name] or by_short[name]]=],
    replace = [=[by_short[name]]=],
    breaks = "help does not know the whole name of anything",
    test = "spec/docs/help_spec.lua -f 'as users write'",
  },
  {
    name = "622-help-near", file = "lua/ganymede/reference/init.lua",
    find = [[for edits = 1,]],
    replace = [[for edits = 3,]],
    breaks = "names that are nearly right are not suggested",
    test = "spec/docs/help_spec.lua -f 'suggest near'",
  },
  {
    name = "623-docs-address", file = "lua/ganymede/reference/html/entries.lua",
    find = [[return entry.page .. "#" .. entries.id(entry) end]],
    replace = [[return entry.page .. "#" .. entry.short end]],
    breaks = "links of the HTML lead nowhere",
    test = "spec/docs/html_spec.lua -f 'broken link'",
  },
  {
    name = "624-docs-escape", file = "lua/ganymede/reference/html/markdown.lua",
    find = [[text = escape(set_code_aside(text, held))]],
    replace = [[text = set_code_aside(text, held)]],
    breaks = "characters of HTML in a guide become tags",
    test = "spec/docs/html_spec.lua -f 'headings, paragraphs'",
  },
  {
    name = "625-docs-search", file = "lua/ganymede/reference/html/init.lua",
    find = [[table.concat(entry.names, " ") }]],
    replace = [["" }]],
    breaks = "the search of the documentation finds no name",
    test = "spec/docs/html_spec.lua -f 'in the search'",
  },
  {
    name = "626-completion-choices", file = "lua/ganymede/cli/completion.lua",
    find = [[    if option.choices then]],
    replace = [[    if false then]],
    breaks = "bash does not complete the choices of an option",
    test = "spec/docs/shell_spec.lua -f 'choices, settings'",
  },
  {
    name = "627-man-hyphens", file = "lua/ganymede/cli/man.lua",
    find = [[:gsub("%-", "\\-")]],
    replace = [[]],
    breaks = "options on the man page have typographic hyphens",
    test = "spec/docs/shell_spec.lua -f 'every verb, its options'",
  },
  {
    name = "628-setting-values", file = "lua/ganymede/reference/settings.lua",
    find = [[if o.one_of then return tostring(o.one_of[1]) end]],
    replace = [[if o.one_of then return "any" end]],
    breaks = "commands of the reference that no parser takes",
    test = "spec/docs/commands_spec.lua -f 'parallel.tensor.mode'",
  },
}
