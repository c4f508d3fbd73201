package conformance

import (
	"maps"
	"path"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
)

// outcome returns the present decisions for all live pods and containers, and the state that each must have.
func (e *Engine) outcome() Outcome {
	o := Outcome{Containers: map[scenario.Ref]Decision{}, Pods: map[scenario.Ref]Decision{}, Refused: maps.Clone(e.refused)}
	for ref, p := range e.pods {
		known := e.state.Pod(p.reported.ID)
		if known == nil || known.Stopped {
			continue
		}
		d := e.decisionOf(known.Values)
		d.State = e.setIdleWeight(e.apply(e.apply(e.emptyState(), resourcesOf(p.requested)), resources(known.Values)), known.Values)
		o.Pods[ref] = d
	}
	for ref, c := range e.ctrs {
		if known := e.state.Container(c.reported.ID); known != nil && known.Alive() {
			o.Containers[ref] = e.container(ref, known)
		}
	}
	return o
}

// container returns the decision for a container, and the state that the container must have.
func (e *Engine) container(ref scenario.Ref, c *engine.Container) Decision {
	values := e.state.Values(c)
	d := e.decisionOf(values)
	d.Initial = e.decisionOf(e.ctrs[ref].initial).Values
	d.Running = c.Life == lifecycle.StateRunning
	s := e.emptyState()
	// A container without a cpuset of its own has the cpuset of its pod.
	s.CPUs = e.podCPUs(ref.Pod())
	s = e.setIdleWeight(e.apply(e.apply(s, c.Pristine), resources(values)), values)
	monitor := ""
	for _, v := range values {
		switch v.Field {
		case lifecycle.RDTGroup:
			s.RDTGroup = v.Text
		case lifecycle.RDTMonitor:
			if v.Text != "" {
				monitor = "/" + path.Base(v.Text)
			}
		case lifecycle.CoreSched:
			d.Group = v.Text
		}
	}
	s.RDTGroup += monitor
	e.ctrs[ref].addCreationValues(&s)
	d.State = s
	return d
}

// addCreationValues adds to a state the values that are set when the container is created and never change later.
func (c *ctr) addCreationValues(s *effective.State) {
	s.Env, s.Mounts, s.Process = map[string]string{}, map[string]string{}, map[string]string{}
	maps.Copy(s.Env, c.requested.Env)
	s.CDI = append(s.CDI, c.requested.CDI...)
	for _, v := range c.initial {
		switch v.Field {
		case lifecycle.Env:
			s.Env[v.Key] = v.Text
		case lifecycle.MountPoint:
			s.Mounts[v.Mount.Destination] = v.Mount.Source
		case lifecycle.DeviceNode:
			s.Devices = append(s.Devices, v.Device.Path)
		case lifecycle.CDIDevice:
			s.CDI = append(s.CDI, v.Key)
		case lifecycle.BlockIOClass:
			s.BlockIO = v.Text
		case lifecycle.RDTClass:
			s.RDTClass = v.Text
		case lifecycle.OOMScoreAdj:
			s.OOM = int(v.Int)
		case lifecycle.ProcessLimit, lifecycle.ProcessIO, lifecycle.ProcessSched, lifecycle.MemPolicy, lifecycle.SysctlEntry, lifecycle.NetDevice, lifecycle.CgroupMount, lifecycle.IntelRDT:
			s.Process[v.Setting()] = v.Text
		case lifecycle.InjectedHook:
			if stage, h, ok := lifecycle.ParseOCIHook(v.Key, v.Text); ok {
				s.Process[effective.HookName(stage, h.Path, h.Args)] = "added"
			}
		}
	}
}

// podCPUs returns the CPUs of a pod's cpuset, as a kernel list.
func (e *Engine) podCPUs(pod scenario.Ref) string {
	p := e.pods[pod]
	s := e.apply(e.emptyState(), resourcesOf(p.requested))
	if known := e.state.Pod(p.reported.ID); known != nil {
		s = e.apply(s, resources(known.Values))
	}
	return s.CPUs
}

// decisionOf returns a Decision that has only its fields Values and Fields set.
func (e *Engine) decisionOf(values []lifecycle.Value) Decision {
	d := Decision{Values: map[string]string{}, Fields: map[string]lifecycle.Field{}}
	for _, v := range values {
		if v.Why.Hook == "" {
			continue // no hook decided the value: it only restores the requested value of a setting
		}
		name := v.Field.String()
		if v.Key != "" {
			name += " " + v.Key
		}
		d.Values[name], d.Fields[name] = v.String(), v.Field
	}
	return d
}

// emptyState returns the state of a cgroup in which nothing was set.
func (e *Engine) emptyState() effective.State {
	m := e.node.Machine
	var nodes []int
	for _, n := range m.Nodes {
		nodes = append(nodes, n.ID)
	}
	s := effective.State{
		CPUs: m.Format(m.Online()), Mems: topology.FormatList(nodes), V2: e.isCgroupV2,
		Shares: 1024, Quota: effective.Unlimited, Period: 100_000, Memory: effective.Unlimited,
	}
	if e.isCgroupV2 {
		s.Shares = 100
	}
	return s
}

// apply returns the state s with the resources r. A resource that is 0 or "" does not change the state.
func (e *Engine) apply(s effective.State, r lifecycle.Resources) effective.State {
	if r.CPU.CPUs != "" {
		s.CPUs = r.CPU.CPUs
	}
	if r.CPU.Mems != "" {
		s.Mems = r.CPU.Mems
	}
	if n := r.CPU.Shares.V; n != 0 {
		s.Shares = n
		if e.isCgroupV2 {
			s.Shares = effective.Weight(n)
		}
	}
	if n := r.CPU.Quota.V; n != 0 {
		s.Quota = max(n, effective.Unlimited)
	}
	if n := r.CPU.Period.V; n != 0 {
		s.Period = int64(n)
	}
	if n := r.Memory.Limit.V; n != 0 {
		s.Memory = max(n, effective.Unlimited)
	}
	return s
}

// setIdleWeight sets the weight that the kernel shows for a cgroup with cpu.idle: 3 in cgroup version 1, and 0 in
// version 2 (sched_group_set_idle, Linux 5.15).
func (e *Engine) setIdleWeight(s effective.State, values []lifecycle.Value) effective.State {
	for _, v := range values {
		if v.Field == lifecycle.Unified && v.Key == "cpu.idle" && v.Text == "1" {
			s.Shares = 3
			if e.isCgroupV2 {
				s.Shares = 0
			}
		}
	}
	return s
}

// resources returns the Resources that have the given values. It ignores values of fields that it does not convert.
func resources(values []lifecycle.Value) lifecycle.Resources {
	var r lifecycle.Resources
	for _, v := range values {
		switch v.Field {
		case lifecycle.CPUShares:
			r.CPU.Shares = lifecycle.Some(uint64(v.Int))
		case lifecycle.CPUQuota:
			r.CPU.Quota = lifecycle.Some(v.Int)
		case lifecycle.CPUPeriod:
			r.CPU.Period = lifecycle.Some(uint64(v.Int))
		case lifecycle.CPUSetCPUs:
			r.CPU.CPUs = v.Text
		case lifecycle.CPUSetMems:
			r.CPU.Mems = v.Text
		case lifecycle.MemoryLimit:
			r.Memory.Limit = lifecycle.Some(v.Int)
		}
	}
	return r
}
