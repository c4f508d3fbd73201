package agent

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/sysfs"
)

// cpuPollInterval is how often the agent reads which CPUs are online and which NUMA nodes have memory. It polls,
// because the kernel sends uevents only to the host's network namespace, and the agent may run in another one.
const cpuPollInterval = time.Second

// memoryPollEvery is the number of polls after which the agent also reads the memory size of each NUMA node. The size
// can change without a change of the list of nodes with memory.
const memoryPollEvery = 30

// hardwareWatcher applies changes of the machine that sysfs reports: of its online CPUs and of its memory.
type hardwareWatcher struct {
	sys      fs.FS // the files in paths.sys
	log      *slog.Logger
	settings *settings
}

// watch makes the agent decide about all containers again when CPUs or memory go offline or online, until ctx ends.
func (h hardwareWatcher) watch(ctx context.Context) {
	tick := time.NewTicker(cpuPollInterval)
	defer tick.Stop()
	var cpus, seen, memory string
	for looks := 0; ; looks++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		text, err := fs.ReadFile(h.sys, "devices/system/cpu/online")
		if list := strings.TrimSpace(string(text)); err == nil && list != cpus {
			ids, err := topology.ParseList(list)
			// After a CPU comes online, the kernel updates cgroups with a delay. So new CPUs are used after the next
			// poll.
			if late := list == seen || h.settings.currentMachine().OnlineCPUs(ids).Len() == len(ids); err == nil && len(ids) > 0 && late {
				cpus = list
				h.applyOnline(ids)
			}
			seen = list
		}
		text, err = fs.ReadFile(h.sys, "devices/system/node/has_memory")
		if err == nil && (string(text) != memory || looks%memoryPollEvery == 0) {
			memory = string(text)
			h.applyMemory()
		}
	}
}

// applyMemory applies a change of the NUMA nodes' memory. Running containers keep their memory nodes.
func (h hardwareWatcher) applyMemory() {
	nodes, err := sysfs.ReadMemory(h.sys)
	if err != nil {
		h.log.Error("the agent cannot read the memory of NUMA nodes; it uses the last known values", logkey.Err, err)
		return
	}
	h.settings.applyMu.Lock()
	defer h.settings.applyMu.Unlock()
	before := h.settings.currentMachine()
	now, unknown := before.WithMemory(nodes)
	if len(unknown) > 0 {
		h.log.Warn("the machine has new NUMA nodes, which the agent uses only after a restart",
			logkey.Nodes, topology.FormatList(unknown))
	}
	if slices.EqualFunc(now.Nodes, before.Nodes, isSameMemory) {
		return
	}
	h.log.Info("the memory of NUMA nodes has changed", logkey.Nodes, memoryOf(now))
	h.settings.applyMachine(now)
}

// memoryTolerance is the divisor of a NUMA node's memory in isSameMemory: the agent ignores changes of up to 1/16 of
// this memory. The reason is the memory balloon of a virtual machine, which makes many small changes.
const memoryTolerance = 16

// isSameMemory reports whether a NUMA node's memory has changed too little for a new decision.
func isSameMemory(now, before topology.Node) bool {
	if now.Kind != before.Kind || (now.Memory == 0) != (before.Memory == 0) {
		return false
	}
	difference := max(now.Memory, before.Memory) - min(now.Memory, before.Memory)
	return difference <= before.Memory/memoryTolerance
}

// memoryOf lists the NUMA nodes with their memory.
func memoryOf(m *topology.Machine) string {
	var all []string
	for _, n := range m.Nodes {
		all = append(all, fmt.Sprintf("%d: %d MiB", n.ID, n.Memory>>20))
	}
	return strings.Join(all, ", ")
}

// applyOnline applies a change of the online CPUs.
func (h hardwareWatcher) applyOnline(ids []int) {
	h.settings.applyMu.Lock()
	defer h.settings.applyMu.Unlock()
	before := h.settings.currentMachine()
	now, unknown := h.readOnline(before).WithOnline(ids)
	if len(unknown) > 0 {
		h.log.Warn("the machine has new CPUs, which the agent uses only after a restart",
			logkey.CPUs, topology.FormatList(unknown))
	}
	if now.Online() == before.Online() || now.Online().Empty() {
		return
	}
	if !slices.Equal(now.Offline, before.Offline) {
		h.log.Warn("the set of online CPUs has changed", logkey.CPUs, now.Format(now.Online()))
	}
	h.settings.applyMachine(now)
}

// readOnline completes a machine with the topology of CPUs that were offline when the agent read the machine, and that
// are online now.
func (h hardwareWatcher) readOnline(m *topology.Machine) *topology.Machine {
	if !slices.ContainsFunc(m.CPUs, func(c topology.CPU) bool { return c.TopologyUnknown }) {
		return m
	}
	later, err := sysfs.Read(h.sys)
	if err != nil {
		h.log.Warn("the agent cannot read the topology of CPUs that came online; it treats each CPU as a separate core", logkey.Err, err)
		return m
	}
	return m.WithTopologyFrom(later)
}
