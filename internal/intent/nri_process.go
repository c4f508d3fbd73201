package intent

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// rlimitNames are the resources of setrlimit(2) in Linux, without the prefix RLIMIT_.
var rlimitNames = []string{
	"AS", "CORE", "CPU", "DATA", "FSIZE", "LOCKS", "MEMLOCK", "MSGQUEUE", "NICE", "NOFILE", "NPROC", "RSS", "RTPRIO", "RTTIME", "SIGPENDING", "STACK",
}

// RlimitType returns the OCI name of a limit, such as RLIMIT_NOFILE for nofile; "" if
// there is no such limit.
func RlimitType(name string) string {
	name = strings.TrimPrefix(strings.ToUpper(name), "RLIMIT_")
	if !slices.Contains(rlimitNames, name) {
		return ""
	}
	return "RLIMIT_" + name
}

// ulimits reads the annotation of NRI's ulimit adjuster, a list of limits.
func (t *podTexts) ulimits(key string) ([]lifecycle.Rlimit, error) {
	var list []struct {
		Type string `json:"type"`
		Hard uint64 `json:"hard"`
		Soft uint64 `json:"soft"`
	}
	if err := t.decodeStrict(key, &list); err != nil {
		return nil, err
	}
	out, seen := make([]lifecycle.Rlimit, len(list)), map[string]bool{}
	for i, l := range list {
		kind := RlimitType(l.Type)
		switch {
		case kind == "":
			return nil, fmt.Errorf("%q is not a process limit of Linux, such as RLIMIT_NOFILE", printable(l.Type))
		case seen[kind]:
			return nil, fmt.Errorf("%s is listed twice", kind)
		case l.Hard < l.Soft:
			return nil, fmt.Errorf("%s: the soft limit %d is above the hard limit %d", kind, l.Soft, l.Hard)
		}
		seen[kind], out[i] = true, lifecycle.Rlimit{Type: kind, Hard: l.Hard, Soft: l.Soft}
	}
	return out, nil
}

// ioPriority reads a class and a level of ioprio_set(2).
func (t *podTexts) ioPriority(key string) (p lifecycle.IOPriority, err error) {
	var ask struct {
		Class    string `json:"class"`
		Priority int32  `json:"priority"`
	}
	if err := t.decodeStrict(key, &ask); err != nil {
		return p, err
	}
	p = lifecycle.IOPriority{Class: ask.Class, Priority: ask.Priority}
	if err := CheckIOPriority(p); err != nil {
		return lifecycle.IOPriority{}, err
	}
	p.Class = strings.ToUpper(p.Class)
	return p, nil
}

// CheckIOPriority checks a class, in small or capital letters, and a level of ioprio_set(2).
func CheckIOPriority(p lifecycle.IOPriority) error {
	class := strings.ToUpper(p.Class)
	switch {
	case !slices.Contains([]string{"IOPRIO_CLASS_NONE", "IOPRIO_CLASS_RT", "IOPRIO_CLASS_BE", "IOPRIO_CLASS_IDLE"}, class):
		return fmt.Errorf("%q is not a class of I/O priority: want IOPRIO_CLASS_NONE, _RT, _BE or _IDLE", printable(p.Class))
	case p.Priority < 0 || p.Priority > 7:
		return fmt.Errorf("priority is %d, want 0 to 7", p.Priority)
	case class == "IOPRIO_CLASS_NONE" && p.Priority != 0:
		return errors.New("IOPRIO_CLASS_NONE has no priority")
	}
	return nil
}

// schedFlags are the supported flags of sched_setattr(2). The flags for utilisation clamps are not supported, because
// NRI has no field for the numbers that they need.
var schedFlags = []string{
	"SCHED_FLAG_RESET_ON_FORK", "SCHED_FLAG_RECLAIM", "SCHED_FLAG_DL_OVERRUN", "SCHED_FLAG_KEEP_POLICY", "SCHED_FLAG_KEEP_PARAMS",
}

// minDeadlineRuntime is the smallest runtime for SCHED_DEADLINE, in ns. maxDeadline is the largest runtime,
// deadline or period. Linux checks these limits in kernel/sched/deadline.c, __checkparam_dl.
const minDeadlineRuntime, maxDeadline = 1 << 10, 1<<63 - 1

// scheduler reads a policy of sched_setattr(2), with its numbers and flags.
func (t *podTexts) scheduler(key string) (s lifecycle.Scheduler, err error) {
	var ask struct {
		Policy   string   `json:"policy"`
		Nice     int32    `json:"nice"`
		Priority int32    `json:"priority"`
		Flags    []string `json:"flags"`
		Runtime  uint64   `json:"runtime"`
		Deadline uint64   `json:"deadline"`
		Period   uint64   `json:"period"`
	}
	if err := t.decodeStrict(key, &ask); err != nil {
		return s, err
	}
	s = lifecycle.Scheduler(ask)
	if err := CheckScheduler(s); err != nil {
		return lifecycle.Scheduler{}, err
	}
	return s, nil
}

// CheckScheduler checks a policy of sched_setattr(2), its numbers and flags.
func CheckScheduler(s lifecycle.Scheduler) error {
	for _, flag := range s.Flags {
		if !slices.Contains(schedFlags, flag) {
			return fmt.Errorf("flag %q is not supported", printable(flag))
		}
	}
	return checkSchedulerNumbers(s)
}

// checkSchedulerNumbers checks the numbers of a scheduling policy in the same way as the kernel.
func checkSchedulerNumbers(s lifecycle.Scheduler) error {
	times := s.Runtime != 0 || s.Deadline != 0 || s.Period != 0
	switch s.Policy {
	case "SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE":
		if s.Priority != 0 || times {
			return fmt.Errorf("%s takes only a nice value: leave priority, runtime, deadline and period out", s.Policy)
		}
		if s.Nice < -20 || s.Nice > 19 {
			return fmt.Errorf("nice is %d, want -20 to 19", s.Nice)
		}
	case "SCHED_FIFO", "SCHED_RR":
		if s.Nice != 0 || times {
			return fmt.Errorf("%s takes only a priority: leave nice, runtime, deadline and period out", s.Policy)
		}
		if s.Priority < 1 || s.Priority > 99 {
			return fmt.Errorf("priority is %d, want 1 to 99", s.Priority)
		}
	case "SCHED_DEADLINE":
		period := s.Period
		if period == 0 {
			period = s.Deadline
		}
		if s.Nice != 0 || s.Priority != 0 || s.Runtime < minDeadlineRuntime || s.Runtime > s.Deadline || s.Deadline > period || period > maxDeadline {
			return fmt.Errorf("want a runtime of at least %d ns, a deadline not below the runtime, and a period not below the deadline", minDeadlineRuntime)
		}
	default:
		return fmt.Errorf("%q is not a policy of Linux: want SCHED_OTHER, _BATCH, _IDLE, _FIFO, _RR or _DEADLINE", printable(s.Policy))
	}
	return nil
}

// memoryModes are the modes of set_mempolicy(2). If needsNodes and mayHaveNodes are both false, a policy with the mode
// must not have nodes.
var memoryModes = map[string]struct{ needsNodes, mayHaveNodes bool }{
	"MPOL_DEFAULT": {}, "MPOL_LOCAL": {}, "MPOL_PREFERRED": {mayHaveNodes: true},
	"MPOL_BIND": {needsNodes: true}, "MPOL_INTERLEAVE": {needsNodes: true}, "MPOL_PREFERRED_MANY": {needsNodes: true}, "MPOL_WEIGHTED_INTERLEAVE": {needsNodes: true},
}

// ParseNodes reads a kernel list of memory nodes.
func ParseNodes(list string) ([]int, error) { return topology.ParseList(list) }

// memoryPolicy reads a mode of set_mempolicy(2), its nodes and flags.
func (t *podTexts) memoryPolicy(key string) (m lifecycle.MemoryPolicy, err error) {
	if m, err = t.memoryPolicyText(key); err != nil {
		return m, err
	}
	return checkNodeList(m)
}

// memoryPolicyText reads a mode, its nodes and flags, and does not check them.
func (t *podTexts) memoryPolicyText(key string) (m lifecycle.MemoryPolicy, err error) {
	var ask struct {
		Mode  string   `json:"mode"`
		Nodes string   `json:"nodes"`
		Flags []string `json:"flags"`
	}
	err = t.decodeStrict(key, &ask)
	return lifecycle.MemoryPolicy(ask), err
}

// checkNodeList checks a policy with a list of nodes, and returns it with a normalised list.
func checkNodeList(m lifecycle.MemoryPolicy) (lifecycle.MemoryPolicy, error) {
	nodes, err := topology.ParseList(m.Nodes)
	if err != nil {
		return lifecycle.MemoryPolicy{}, fmt.Errorf("nodes: %w", err)
	}
	m.Nodes = topology.FormatList(nodes)
	if err := checkMemoryMode(m.Mode, m.Flags, len(nodes) > 0); err != nil {
		return lifecycle.MemoryPolicy{}, err
	}
	return m, nil
}

// checkMemoryMode checks a mode and its flags. hasNodes reports whether the policy has nodes.
func checkMemoryMode(name string, flags []string, hasNodes bool) error {
	mode, known := memoryModes[name]
	switch {
	case !known:
		return fmt.Errorf("%q is not a mode of set_mempolicy(2)", printable(name))
	case mode.needsNodes && !hasNodes:
		return fmt.Errorf("%s needs nodes", name)
	case !mode.needsNodes && !mode.mayHaveNodes && hasNodes:
		return fmt.Errorf("a policy with mode %s cannot have nodes", name)
	}
	return checkMemoryFlags(name, flags, hasNodes)
}

// checkMemoryFlags checks the flags of a memory policy in the same way as the kernel (mm/mempolicy.c,
// sanitize_mpol_flags).
func checkMemoryFlags(mode string, flags []string, hasNodes bool) error {
	const static, relative, balancing = "MPOL_F_STATIC_NODES", "MPOL_F_RELATIVE_NODES", "MPOL_F_NUMA_BALANCING"
	for _, flag := range flags {
		switch {
		case flag != static && flag != relative && flag != balancing:
			return fmt.Errorf("flag %q is not known", printable(flag))
		case flag == balancing && mode != "MPOL_BIND" && mode != "MPOL_PREFERRED_MANY":
			return fmt.Errorf("%s can only be used with MPOL_BIND and MPOL_PREFERRED_MANY", flag)
		case !hasNodes:
			return fmt.Errorf("%s needs nodes", flag)
		}
	}
	if slices.Contains(flags, static) && slices.Contains(flags, relative) {
		return errors.New("nodes cannot be both static and relative")
	}
	return nil
}

// maxSysctlValue limits the value of a kernel parameter, in bytes.
const maxSysctlValue = 256

// sysctls reads kernel parameters by name.
func (t *podTexts) sysctls(key string) (map[string]string, error) {
	var ask map[string]scalar
	if err := t.decodeStrict(key, &ask); err != nil {
		return nil, err
	}
	out := make(map[string]string, len(ask))
	for _, name := range sortedKeys(ask) {
		text := string(ask[name])
		switch {
		case name == "" || strings.Trim(name, asciiAlphanumerics+"-_.") != "" || strings.Contains(name, "..") || name[0] == '-':
			return nil, fmt.Errorf("%q is not the name of a kernel parameter", printable(name))
		case len(text) > maxSysctlValue || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }):
			return nil, fmt.Errorf("%s: want a value of at most %d printable ASCII characters", name, maxSysctlValue)
		}
		out[name] = text
	}
	return out, nil
}
