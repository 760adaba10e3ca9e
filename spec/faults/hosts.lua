--- Two or more hosts that are network namespaces of this machine, joined by a bridge in a namespace of its own, as by a
-- switch. For specs.
--
--     local why = hosts.missing()           nil, or what this machine lacks
--     local net = hosts.new(3)              addresses 10.99.0.1 and up (hosts.addresses[i]), interface eth0 on each
--     net:inside(0)                         words before a command that is to run on host 0 (or 1, ...), named
--     net:agent(path)                       writes a program by which mpirun reaches hosts (plm_rsh_agent)
--     net:cut(2), net:heal()                the link of a host (default 0) goes down; all come up
--     net:remove()
--     hosts.received                        text of a recipe: received() -> the bytes that its host has received
local core = require "ganymede.core"
local shell = require "spec.support.shell"

local hosts = { addresses = {} }
for i = 0, 7 do hosts.addresses[i] = ("10.99.0.%d"):format(i + 1) end

hosts.received = [[
local function received()
  for line in io.lines "/proc/net/dev" do
    local bytes = line:match "eth0: *(%d+)"
    if bytes then return tonumber(bytes) end
  end
end
]]

local Net = {}
Net.__index = Net

local function must(line)
  local result = shell.run(line)
  if result.code ~= 0 then error(line .. ": " .. result.err, 2) end
end

local function named() return ("gmspec%d"):format(core.process().pid) end

function hosts.missing()
  if shell.run("command -v ip && command -v unshare").code ~= 0 then
    return "there is no ip or no unshare here; Debian's packages iproute2 and util-linux have them"
  end
  local name = named() .. "t"
  local made = shell.run(("ip netns add %s && ip netns exec %s ip link add %s type veth peer name %s && "
    .. "ip netns exec %s ip link add br0 type bridge && ip netns exec %s unshare -u true"):format(name, name, "eth0",
    "eth1", name, name))
  shell.run("ip netns del " .. name)
  if made.code ~= 0 then return "no network namespace can be made here (" .. made.err:gsub("%s+$", "") .. ")" end
end

-- Joins host i to the switch.
local function plug(self, i)
  local switch, host = self.name .. "s", self.name .. i
  must(("ip netns add %s && ip netns exec %s ip link set lo up"):format(host, host))
  must(("ip netns exec %s ip link add port%d type veth peer name eth0 netns %s"):format(switch, i, host))
  must(("ip netns exec %s sh -c 'ip link set port%d master br0 && ip link set port%d up'"):format(switch, i, i))
  must(("ip netns exec %s sh -c 'ip addr add %s/24 dev eth0 && ip link set eth0 up'"):format(host, hosts.addresses[i]))
end

function hosts.new(count)
  local self = setmetatable({ name = named(), count = count }, Net)
  must(("ip netns add %ss && ip netns exec %ss sh -c 'ip link add br0 type bridge && ip link set br0 up'"):format(
    self.name, self.name))
  for i = 0, count - 1 do plug(self, i) end
  return self
end

function Net:inside(i)
  return ("ip netns exec %s%d unshare -u sh -c 'hostname %s%d && exec \"$@\"' sh"):format(self.name, i, self.name, i)
end

function Net:agent(path)
  local lines = { "#!/bin/sh", "# HOST COMMAND...: stands for ssh", "host=$1", "shift", "case $host in" }
  for i = 0, self.count - 1 do
    lines[#lines + 1] = ("%s) exec %s sh -c \"$*\" ;;"):format(hosts.addresses[i], self:inside(i))
  end
  shell.write(path, table.concat(lines, "\n") .. "\nesac\nexit 1\n")
  must("chmod +x " .. shell.quote(path))
end

local function turn(self, i, way) must(("ip netns exec %s%d ip link set eth0 %s"):format(self.name, i, way)) end

function Net:cut(i) turn(self, i or 0, "down") end
function Net:heal()
  for i = 0, self.count - 1 do turn(self, i, "up") end
end
function Net:remove()
  for i = 0, self.count - 1 do shell.run(("ip netns del %s%d"):format(self.name, i)) end
  shell.run("ip netns del " .. self.name .. "s")
end

return hosts
