package agent

import (
	"context"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/sysfs"
)

// lookAtCPUs is how often the kernel is asked which CPUs are online, and which NUMA
// nodes have memory. It tells by uevents too, but only those who are in the host's
// network namespace.
const lookAtCPUs = time.Second

// lookAtMemory is after how many looks nodes' sizes are read, too: memory can come
// to a node that has some.
const lookAtMemory = 30

// followHardware has everything decided anew when CPUs or memory go offline or come
// back, until ctx ends.
func (a *Agent) followHardware(ctx context.Context) {
	sys := os.DirFS(a.opt.Config.Paths.Sys)
	tick := time.NewTicker(lookAtCPUs)
	defer tick.Stop()
	var cpus, seen, memory string
	for looks := 0; ; looks++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		text, err := fs.ReadFile(sys, "devices/system/cpu/online")
		if list := strings.TrimSpace(string(text)); err == nil && list != cpus {
			ids, err := topology.ParseList(list)
			// Cgroups follow a CPU that came a moment later: they are asked once the kernel had time for that.
			if late := list == seen || !a.comes(ids); err == nil && len(ids) > 0 && late {
				cpus = list
				a.takeOnline(sys, ids)
			}
			seen = list
		}
		text, err = fs.ReadFile(sys, "devices/system/node/has_memory")
		if err == nil && (string(text) != memory || looks%lookAtMemory == 0) {
			memory = string(text)
			a.takeMemory(sys)
		}
	}
}

// takeMemory puts it in force that NUMA nodes have other memory. Containers that run
// keep their memory nodes.
func (a *Agent) takeMemory(sys fs.FS) {
	nodes, err := sysfs.Memory(sys)
	if err != nil {
		a.log.Error("the memory of NUMA nodes cannot be read; what was known stays", logkey.Err, err)
		return
	}
	a.applying.Lock()
	defer a.applying.Unlock()
	before := a.hardware()
	now, unknown := before.WithMemory(nodes)
	if len(unknown) > 0 {
		a.log.Warn("NUMA nodes came that were not there when the agent was started; they are used once it is started anew",
			logkey.Nodes, topology.FormatList(unknown))
	}
	same := func(n, o topology.Node) bool { return n.Memory == o.Memory && n.Kind == o.Kind }
	if slices.EqualFunc(now.Nodes, before.Nodes, same) {
		return
	}
	a.log.Warn("NUMA nodes have other memory now")
	a.rehost(now)
}

// comes reports whether one of these CPUs is not online as far as the agent knows.
func (a *Agent) comes(ids []int) bool {
	m := a.hardware()
	return m.OnlineIDs(ids).Len() < len(ids)
}

// takeOnline puts it in force that these CPUs are online.
func (a *Agent) takeOnline(sys fs.FS, ids []int) {
	a.applying.Lock()
	defer a.applying.Unlock()
	before := a.hardware()
	now, unknown := a.learn(sys, before).WithOnline(ids)
	if len(unknown) > 0 {
		a.log.Warn("CPUs came online that were not there when the agent was started; they are used once it is started anew",
			logkey.CPUs, topology.FormatList(unknown))
	}
	if now.Online() == before.Online() || now.Online().Empty() {
		return
	}
	if !slices.Equal(now.Offline, before.Offline) {
		a.log.Warn("other CPUs are online now", logkey.CPUs, now.Format(now.Online()))
	}
	a.rehost(now)
}

// learn finds out where CPUs are that were offline when the machine was read, and
// are online now.
func (a *Agent) learn(sys fs.FS, m *topology.Machine) *topology.Machine {
	if !slices.ContainsFunc(m.CPUs, func(c topology.CPU) bool { return c.Unread }) {
		return m
	}
	later, err := sysfs.Read(sys)
	if err != nil {
		a.log.Warn("it cannot be read where CPUs are that came online; they count as cores of their own", logkey.Err, err)
		return m
	}
	return m.Learned(later)
}

// rehost puts the policy in force on a machine that changed. The caller holds
// applying.
func (a *Agent) rehost(now *topology.Machine) {
	a.mu.Lock()
	c, released := a.config, a.released
	a.mu.Unlock()
	policy, err := policyOf(c, now, a.node)
	if err != nil {
		a.log.Error("the configuration cannot hold on these CPUs; what was decided stays", logkey.Err, err)
		return
	}
	if released {
		policy = nothing(policy)
	}
	a.mu.Lock()
	a.machine = now
	a.mu.Unlock()
	a.conductor.Rehost(now, policy, tuning(c))
}

// hardware is the machine as it is now.
func (a *Agent) hardware() *topology.Machine {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.machine
}
