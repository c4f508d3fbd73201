package class

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// SchedulingClasses is the list of scheduling classes in the configuration of a policy.
type SchedulingClasses []SchedulingOptions

// Check returns the names of the classes, and the problems of the classes. The paths of problems are relative
// to the policy's key. The numbers of a class must be in the ranges that the kernel accepts.
func (all SchedulingClasses) Check() (known map[string]bool, wrong []Problem) {
	known, wrong = CheckNames(len(all), "schedulingClasses", func(i int) string { return all[i].Name })
	for i := range all {
		wrong = append(wrong, all[i].check(fmt.Sprintf("schedulingClasses[%d].", i))...)
	}
	return known, wrong
}

// CheckSchedulingClass returns a problem if the key at path names a class that does not exist. An empty name
// is valid.
func CheckSchedulingClass(known map[string]bool, path, name string) []Problem {
	if name == "" || known[name] {
		return nil
	}
	return []Problem{{path, Quote(name) + " is not a class of schedulingClasses"}}
}

// ClassOf returns the scheduling class for a container, and the problems of the pod's request. If the pod requests an
// existing class for the container, the result is that class. Otherwise the result is the class with the given name,
// and the parameter key is the configuration key that selected this name. If no class has this name, the result is the
// zero value. The parameter section is the policy's section of the configuration, for messages. The parameter fallback
// tells users what a container gets in place of a class that does not exist.
func (all SchedulingClasses) ClassOf(s placement.Subject, section, fallback, name, key string) (c lifecycle.SchedulingClass, wrong []lifecycle.Problem) {
	if asked := s.Intent.SchedulingClass.V.Of(s.Name); asked.IsSet() {
		if o := all.byName(asked.V); o != nil {
			return o.forContainer(asked.Key), nil
		}
		wrong = []lifecycle.Problem{{
			Key: asked.Key, Value: intent.Printable(asked.V), Reason: section + " has no such scheduling class", Refused: true, Then: fallback,
		}}
	}
	if o := all.byName(name); o != nil {
		c = o.forContainer(key)
	}
	return c, wrong
}

// byName returns the class with a name; nil if there is none.
func (all SchedulingClasses) byName(name string) *SchedulingOptions {
	i := slices.IndexFunc(all, func(o SchedulingOptions) bool { return o.Name == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// forContainer returns the class as a value for a container. key is the annotation or configuration key that
// chose the class.
func (o *SchedulingOptions) forContainer(key string) lifecycle.SchedulingClass {
	class := lifecycle.SchedulingClass{Name: o.Name, From: key}
	if s := o.scheduler(); s != nil {
		class.Scheduler = s.Text()
	}
	if io := o.ioPriority(); io != nil {
		class.IOPriority = io.Text()
	}
	return class
}

// scheduler returns the scheduling policy of a class; nil if the class leaves the policy as it is.
func (o *SchedulingOptions) scheduler() *lifecycle.Scheduler {
	const nanoseconds = 1000 // in one µs
	s := lifecycle.Scheduler{
		Priority: int32(o.Priority), Nice: int32(o.Nice), //nolint:gosec // validated
		Runtime: nanoseconds * uint64(o.Runtime), Deadline: nanoseconds * uint64(o.Deadline), Period: nanoseconds * uint64(o.Period), //nolint:gosec // validated
	}
	for _, flag := range o.Flags {
		s.Flags = append(s.Flags, "SCHED_FLAG_"+strings.ReplaceAll(strings.ToUpper(flag), "-", "_"))
	}
	policy := o.Policy
	if policy == "" && s.Text() != "" {
		policy = "other"
	}
	if policy == "" || policy == "none" && s.Text() == "" {
		return nil
	}
	s.Policy = "SCHED_" + strings.ToUpper(policy)
	return &s
}

// ioPriority returns the I/O priority of a class; nil if the class leaves the I/O priority as it is.
func (o *SchedulingOptions) ioPriority() *lifecycle.IOPriority {
	if o.IOClass == "" && o.IOPriority == 0 {
		return nil
	}
	return &lifecycle.IOPriority{Class: "IOPRIO_CLASS_" + strings.ToUpper(o.IOClass), Priority: int32(o.IOPriority)} //nolint:gosec // validated
}

// check returns the problems of a scheduling class, such as numbers outside their range. path is the path of
// the class, with a final dot.
func (o *SchedulingOptions) check(path string) (wrong []Problem) {
	s, p := o.scheduler(), o.ioPriority()
	switch {
	case s == nil:
	case o.Policy == "none":
		wrong = append(wrong, Problem{path + "policy", "is none, which takes neither numbers nor flags"})
	default:
		if err := intent.CheckScheduler(*s); err != nil {
			wrong = append(wrong, Problem{path + "policy", err.Error()})
		}
	}
	switch {
	case p == nil:
	case o.IOClass == "":
		wrong = append(wrong, Problem{path + "ioPriority", "needs ioClass: rt or be"})
	default:
		if err := intent.CheckIOPriority(*p); err != nil {
			wrong = append(wrong, Problem{path + "ioClass", err.Error()})
		}
	}
	return wrong
}
