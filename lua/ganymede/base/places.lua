--- Folders that somebody names for results: made, and tried, before the work begins.
--
--     places.make("out")              -- a failure of status 2 if it cannot be made, or nothing can be written in it
--     places.make("out", "--out")     -- the same; the message begins with this
--
-- The trap: what is made stays, so a caller first refuses what it can without the folder.
-- @module ganymede.base.places
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local signature = require "ganymede.base.signature"

local places = {}

local function make(folder)
  core.make_folders(folder)
  local ok, why = core.check_writable(folder .. "/x")
  if not ok then failure(2, "%s", why) end
end

--- Makes a folder, with those above it, and looks whether files can be written there; a failure of status 2 if not.
function places.make(folder, what) failure.about(what or folder, make, folder) end

return signature.export("places", places)
