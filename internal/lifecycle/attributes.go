package lifecycle

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// SchedulingClass is how the processes of a container are scheduled, as the placement policy chose
// it when the container was created. The zero value leaves that to the runtime's request.
type SchedulingClass struct {
	Name string `json:"name,omitempty"`
	From string `json:"from,omitempty"` // the key that gives the container this class
	// Scheduler and IOPriority are values of ProcessSched and ProcessIO; "" for none.
	Scheduler  string `json:"scheduler,omitempty"`
	IOPriority string `json:"ioPriority,omitempty"`
}

// MemoryPolicy is the NUMA memory policy that a container's first process starts
// with, as set_mempolicy(2) takes it.
type MemoryPolicy struct {
	Mode  string   // MPOL_BIND
	Nodes string   // memory nodes as a kernel list; "" for none
	Flags []string // MPOL_F_STATIC_NODES
}

// Text is the limit as a value of ProcessLimit has it, whose key is the type:
// "1024:4096", the soft limit first.
func (r Rlimit) Text() string { return fmt.Sprintf("%d:%d", r.Soft, r.Hard) }

// ParseRlimit reads a value of ProcessLimit.
func ParseRlimit(kind, text string) (r Rlimit, ok bool) {
	soft, hard, _ := strings.Cut(text, ":")
	s, err := strconv.ParseUint(soft, 10, 64)
	h, wrong := strconv.ParseUint(hard, 10, 64)
	return Rlimit{Type: kind, Soft: s, Hard: h}, kind != "" && err == nil && wrong == nil && s <= h
}

// Text is the priority as a value of ProcessIO has it: "IOPRIO_CLASS_BE 4".
func (p IOPriority) Text() string { return fmt.Sprintf("%s %d", p.Class, p.Priority) }

// ParseIOPriority reads a value of ProcessIO.
func ParseIOPriority(text string) (p IOPriority, ok bool) {
	class, level, _ := strings.Cut(text, " ")
	n, err := strconv.ParseInt(level, 10, 32)
	return IOPriority{Class: class, Priority: int32(n)}, class != "" && err == nil
}

// Text is the setting as a value of ProcessSched has it: the policy, and what is
// not 0, as "SCHED_FIFO priority=10 flags=SCHED_FLAG_RESET_ON_FORK".
func (s Scheduler) Text() string {
	w := words{s.Policy}
	w.number("nice", int64(s.Nice))
	w.number("priority", int64(s.Priority))
	w.list("flags", s.Flags)
	w.number("runtime", s.Runtime)
	w.number("deadline", s.Deadline)
	w.number("period", s.Period)
	return w.text()
}

// ParseScheduler reads a value of ProcessSched.
func ParseScheduler(text string) (s Scheduler, ok bool) {
	head, rest, ok := attributes(text, "nice", "priority", "flags", "runtime", "deadline", "period")
	s.Policy, s.Flags = head, split(rest["flags"])
	for name, into := range map[string]*uint64{"runtime": &s.Runtime, "deadline": &s.Deadline, "period": &s.Period} {
		n, err := strconv.ParseUint(orZero(rest[name]), 10, 64)
		*into, ok = n, ok && err == nil
	}
	for name, into := range map[string]*int32{"nice": &s.Nice, "priority": &s.Priority} {
		n, err := strconv.ParseInt(orZero(rest[name]), 10, 32)
		*into, ok = int32(n), ok && err == nil //nolint:gosec // parsed within 32 bits
	}
	return s, ok
}

// Text is the policy as a value of MemPolicy has it: "MPOL_BIND nodes=0-1".
func (m MemoryPolicy) Text() string {
	w := words{m.Mode}
	if m.Nodes != "" {
		w = append(w, "nodes="+m.Nodes)
	}
	w.list("flags", m.Flags)
	return w.text()
}

// ParseMemoryPolicy reads a value of MemPolicy.
func ParseMemoryPolicy(text string) (m MemoryPolicy, ok bool) {
	head, rest, ok := attributes(text, "nodes", "flags")
	return MemoryPolicy{Mode: head, Nodes: rest["nodes"], Flags: split(rest["flags"])}, ok
}

// words are the parts of a value's text.
type words []string

func (w *words) number(name string, n any) {
	if text := fmt.Sprint(n); text != "0" {
		*w = append(*w, name+"="+text)
	}
}

func (w *words) list(name string, list []string) {
	if len(list) > 0 {
		*w = append(*w, name+"="+strings.Join(list, ","))
	}
}

func (w words) text() string { return strings.Join(w, " ") }

// attributes reads a word and what follows it as name=value, each name at most once.
func attributes(text string, names ...string) (head string, rest map[string]string, ok bool) {
	head, more, _ := strings.Cut(text, " ")
	rest = map[string]string{}
	for _, word := range strings.Fields(more) {
		name, value, has := strings.Cut(word, "=")
		if _, twice := rest[name]; !has || twice || !slices.Contains(names, name) {
			return head, rest, false
		}
		rest[name] = value
	}
	return head, rest, head != ""
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

func orZero(text string) string {
	if text == "" {
		return "0"
	}
	return text
}

// NoLimit is the number that stands for no limit of a process resource
// (RLIM_INFINITY).
const NoLimit uint64 = math.MaxUint64
