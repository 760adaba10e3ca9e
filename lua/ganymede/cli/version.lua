--- ganymede version
local verb = { prints = true, summary = "print the version" }

verb.examples = { "ganymede version" }

function verb.run() print(("ganymede %s (%s)"):format(require "ganymede.base.version", jit.version)) end

return verb
