package lifecycle

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// SchedulingClass is the scheduler and I/O priority that the placement policy chose for the processes of a
// container at the container's creation. With the zero value, the processes have what the runtime requested.
type SchedulingClass struct {
	Name string `json:"name,omitempty"`
	From string `json:"from,omitempty"` // the annotation or configuration key that selected the class
	// Scheduler is the text of a value of the field ProcessSched, and IOPriority of the field ProcessIO; "" for none.
	Scheduler  string `json:"scheduler,omitempty"`
	IOPriority string `json:"ioPriority,omitempty"`
}

// MemoryPolicy is the NUMA memory policy that a container's first process starts
// with, as set_mempolicy(2) takes it.
type MemoryPolicy struct {
	Mode  string   // such as MPOL_BIND
	Nodes string   // memory nodes as a kernel list; "" for none
	Flags []string // such as MPOL_F_STATIC_NODES
}

// Text returns the limit as the text of a ProcessLimit value, with the soft limit first, such as
// "1024:4096". The value's key is the type of the limit.
func (r Rlimit) Text() string { return fmt.Sprintf("%d:%d", r.Soft, r.Hard) }

// ParseRlimit parses the text of a ProcessLimit value. kind is the type of the limit, such as RLIMIT_NOFILE.
func ParseRlimit(kind, text string) (r Rlimit, ok bool) {
	soft, hard, _ := strings.Cut(text, ":")
	s, err := strconv.ParseUint(soft, 10, 64)
	h, wrong := strconv.ParseUint(hard, 10, 64)
	return Rlimit{Type: kind, Soft: s, Hard: h}, kind != "" && err == nil && wrong == nil && s <= h
}

// Text returns the priority as the text of a ProcessIO value, such as "IOPRIO_CLASS_BE 4".
func (p IOPriority) Text() string { return fmt.Sprintf("%s %d", p.Class, p.Priority) }

// ParseIOPriority parses the text of a ProcessIO value.
func ParseIOPriority(text string) (p IOPriority, ok bool) {
	class, level, _ := strings.Cut(text, " ")
	n, err := strconv.ParseInt(level, 10, 32)
	return IOPriority{Class: class, Priority: int32(n)}, class != "" && err == nil
}

// Text returns the setting as the text of a ProcessSched value: the policy, then all parameters that are
// not 0. An example is "SCHED_FIFO priority=10 flags=SCHED_FLAG_RESET_ON_FORK".
func (s Scheduler) Text() string {
	w := textParts{s.Policy}
	w.addNumber("nice", int64(s.Nice))
	w.addNumber("priority", int64(s.Priority))
	w.addList("flags", s.Flags)
	w.addNumber("runtime", s.Runtime)
	w.addNumber("deadline", s.Deadline)
	w.addNumber("period", s.Period)
	return w.text()
}

// ParseScheduler parses the text of a ProcessSched value.
func ParseScheduler(text string) (s Scheduler, ok bool) {
	head, rest, ok := parseAttributes(text, "nice", "priority", "flags", "runtime", "deadline", "period")
	s.Policy, s.Flags = head, splitList(rest["flags"])
	for name, into := range map[string]*uint64{"runtime": &s.Runtime, "deadline": &s.Deadline, "period": &s.Period} {
		n, err := strconv.ParseUint(zeroIfEmpty(rest[name]), 10, 64)
		*into, ok = n, ok && err == nil
	}
	for name, into := range map[string]*int32{"nice": &s.Nice, "priority": &s.Priority} {
		n, err := strconv.ParseInt(zeroIfEmpty(rest[name]), 10, 32)
		*into, ok = int32(n), ok && err == nil //nolint:gosec // parsed within 32 bits
	}
	return s, ok
}

// Text returns the policy as the text of a MemPolicy value, such as "MPOL_BIND nodes=0-1".
func (m MemoryPolicy) Text() string {
	w := textParts{m.Mode}
	if m.Nodes != "" {
		w = append(w, "nodes="+m.Nodes)
	}
	w.addList("flags", m.Flags)
	return w.text()
}

// ParseMemoryPolicy parses the text of a MemPolicy value.
func ParseMemoryPolicy(text string) (m MemoryPolicy, ok bool) {
	head, rest, ok := parseAttributes(text, "nodes", "flags")
	return MemoryPolicy{Mode: head, Nodes: rest["nodes"], Flags: splitList(rest["flags"])}, ok
}

// textParts are the words of a value's text.
type textParts []string

// addNumber adds the word name=n, unless n is 0.
func (w *textParts) addNumber(name string, n any) {
	if text := fmt.Sprint(n); text != "0" {
		*w = append(*w, name+"="+text)
	}
}

// addList adds the word name=list with the elements separated by commas, unless the list is empty.
func (w *textParts) addList(name string, list []string) {
	if len(list) > 0 {
		*w = append(*w, name+"="+strings.Join(list, ","))
	}
}

// text returns the words separated by spaces.
func (w textParts) text() string { return strings.Join(w, " ") }

// parseAttributes parses a word (head) and the name=value pairs after it (rest). ok is false if a pair has a name
// that is not in names, or if a name occurs twice.
func parseAttributes(text string, names ...string) (head string, rest map[string]string, ok bool) {
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

// splitList splits a list at its commas. For an empty list, it returns nil.
func splitList(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// zeroIfEmpty returns "0" for an empty text, and any other text unchanged.
func zeroIfEmpty(text string) string {
	if text == "" {
		return "0"
	}
	return text
}

// NoLimit is the value of an unlimited process resource (RLIM_INFINITY).
const NoLimit uint64 = math.MaxUint64
