--- ganymede docs: the documentation and the reference as files: HTML, a man page, completion of shells, annotations.
local failure = require "ganymede.base.failure"
local places = require "ganymede.base.places"

local verb = { summary = "write the documentation: HTML pages, a man page, shell completion, LuaLS annotations" }

verb.examples = {
  "ganymede docs --out docs-html", "ganymede docs --man ganymede.1", "ganymede docs --completion bash >ganymede.bash",
  "ganymede docs --luals annotations",
}

function verb.arguments(parser)
  parser:option("--out", "write HTML pages into this folder (default, if nothing else is asked for: docs-html)")
    :argname "DIR"
  parser:option("--man", "write the man page"):argname "FILE"
  parser:option("--completion", "print the completion of a shell"):choices { "bash", "zsh" }
  parser:option("--luals", "write annotations for lua-language-server into this folder"):argname "DIR"
end

function verb.run(args)
  local core, log = require "ganymede.core", require "ganymede.base.log"
  if args.completion and (args.out or args.man or args.luals) then
    failure(2, "docs: --completion prints on standard output; ask for it alone")
  end
  if args.completion then
    print((require("ganymede.cli.completion")[args.completion]():gsub("\n$", "")))
    return require("ganymede.cli").check_output()
  end
  if args.man then core.write_whole(args.man, require "ganymede.cli.man"()) end
  if args.luals then
    places.make(args.luals)
    log.result(("%d files are in %s"):format(require("ganymede.reference.luals").write(args.luals), args.luals))
  end
  if args.out or not (args.man or args.luals) then
    local folder = args.out or "docs-html"
    places.make(folder)
    local count = require("ganymede.reference.html").write(folder)
    log.result(("%d files are in %s; open %s/index.html"):format(count, folder, folder))
  end
end

return verb
