--- Two hosts that are network namespaces of this machine, joined by a pair of virtual Ethernet devices. For specs.
--
--     local why = hosts.missing()           nil, or what this machine lacks
--     local pair = hosts.new()              addresses 10.99.0.1 and 10.99.0.2, interface eth0 on both
--     pair:inside(0)                        words before a command that is to run on host 0 (or 1), which has a name
--     pair:agent(path)                      writes a program by which mpirun reaches hosts (plm_rsh_agent)
--     pair:cut(), pair:heal()               the link goes down, comes up
--     pair:remove()
local core = require "ganymede.core"
local shell = require "spec.support.shell"

local hosts = { addresses = { [0] = "10.99.0.1", "10.99.0.2" } }
local Pair = {}
Pair.__index = Pair

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
    .. "ip netns exec %s unshare -u true"):format(name, name, "eth0", "eth1", name))
  shell.run("ip netns del " .. name)
  if made.code ~= 0 then return "no network namespace can be made here (" .. made.err:gsub("%s+$", "") .. ")" end
end

function hosts.new()
  local self = setmetatable({ name = named() }, Pair)
  for i = 0, 1 do
    must(("ip netns add %s%d && ip netns exec %s%d ip link set lo up"):format(self.name, i, self.name, i))
  end
  must(("ip netns exec %s0 ip link add eth0 type veth peer name eth0 netns %s1"):format(self.name, self.name))
  for i = 0, 1 do
    must(("ip netns exec %s%d sh -c 'ip addr add %s/24 dev eth0 && ip link set eth0 up'"):format(self.name, i,
      hosts.addresses[i]))
  end
  return self
end

function Pair:inside(i)
  return ("ip netns exec %s%d unshare -u sh -c 'hostname %s%d && exec \"$@\"' sh"):format(self.name, i, self.name, i)
end

function Pair:agent(path)
  local lines = { "#!/bin/sh", "# HOST COMMAND...: stands for ssh", "host=$1", "shift", "case $host in" }
  for i = 0, 1 do
    lines[#lines + 1] = ("%s) exec %s sh -c \"$*\" ;;"):format(hosts.addresses[i], self:inside(i))
  end
  shell.write(path, table.concat(lines, "\n") .. "\nesac\nexit 1\n")
  must("chmod +x " .. shell.quote(path))
end

function Pair:cut() must(("ip netns exec %s0 ip link set eth0 down"):format(self.name)) end
function Pair:heal() must(("ip netns exec %s0 ip link set eth0 up"):format(self.name)) end
function Pair:remove()
  for i = 0, 1 do shell.run(("ip netns del %s%d"):format(self.name, i)) end
end

return hosts
