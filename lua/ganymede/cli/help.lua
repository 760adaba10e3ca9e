--- ganymede help [VERB]
local verb = { summary = "list the verbs, or explain one" }

function verb.arguments(parser) parser:argument("verb", "the verb to explain"):args "?" end

function verb.run(args)
  local cli = require "ganymede.cli"
  if not args.verb then
    print(cli.overview())
  else
    print(cli.parser(args.verb, cli.verb(args.verb)):get_help())
  end
end

return verb
