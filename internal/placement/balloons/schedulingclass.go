package balloons

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// scheduler returns the scheduling policy of a class; nil if it leaves the policy as it is.
func (o *SchedulingOptions) scheduler() *lifecycle.Scheduler {
	const nanoseconds = 1000 // of one µs
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

// ioPriority returns the I/O priority of a class; nil if it leaves the priority as it is.
func (o *SchedulingOptions) ioPriority() *lifecycle.IOPriority {
	if o.IOClass == "" && o.IOPriority == 0 {
		return nil
	}
	return &lifecycle.IOPriority{Class: "IOPRIO_CLASS_" + strings.ToUpper(o.IOClass), Priority: int32(o.IOPriority)} //nolint:gosec // validated
}

// checkSchedulingClasses returns faults of scheduling classes and of types that name them. The
// numbers of a class are checked as those of an annotation.
func checkSchedulingClasses(o PolicyOptions) (wrong []Wrong) {
	known := map[string]bool{}
	for i := range o.SchedulingClasses {
		c, at := &o.SchedulingClasses[i], fmt.Sprintf("schedulingClasses[%d].", i)
		switch {
		case c.Name == "":
			wrong = append(wrong, Wrong{at + "name", "is empty: want a name"})
		case known[c.Name]:
			wrong = append(wrong, Wrong{at + "name", quote(c.Name) + " is given twice"})
		}
		known[c.Name] = true
		wrong = append(wrong, c.check(at)...)
	}
	for i := range o.BalloonTypes {
		if name := o.BalloonTypes[i].SchedulingClass; name != "" && !known[name] {
			wrong = append(wrong, Wrong{fmt.Sprintf("balloonTypes[%d].schedulingClass", i), quote(name) + " is no class of schedulingClasses"})
		}
	}
	return wrong
}

// check returns faults of the numbers of a class.
func (o *SchedulingOptions) check(at string) (wrong []Wrong) {
	s, p := o.scheduler(), o.ioPriority()
	switch {
	case s == nil:
	case o.Policy == "none":
		wrong = append(wrong, Wrong{at + "policy", "is none, which takes neither numbers nor flags"})
	default:
		if err := intent.CheckScheduler(*s); err != nil {
			wrong = append(wrong, Wrong{at + "policy", err.Error()})
		}
	}
	switch {
	case p == nil:
	case o.IOClass == "":
		wrong = append(wrong, Wrong{at + "ioPriority", "needs ioClass: rt or be"})
	default:
		if err := intent.CheckIOPriority(*p); err != nil {
			wrong = append(wrong, Wrong{at + "ioClass", err.Error()})
		}
	}
	return wrong
}

// schedulingOf returns the scheduling class of a container in a balloon of a type: the class that it
// names, or else that of the type.
func (p *Policy) schedulingOf(t *TypeOptions, s placement.Subject) (class lifecycle.SchedulingClass, wrong []lifecycle.Problem) {
	if asked := s.Intent.SchedulingClass.V.Of(s.Name); asked.IsSet() {
		if c := p.schedulingClass(asked.V); c != nil {
			return c.from(asked.Key), nil
		}
		wrong = []lifecycle.Problem{{
			Key: asked.Key, Value: intent.Printable(asked.V), Reason: "placement.balloons has no such scheduling class", Refused: true,
			Then: "the container gets the class of its balloon's type",
		}}
	}
	if c := p.schedulingClass(t.SchedulingClass); c != nil {
		class = c.from("placement.balloons." + t.Name)
	}
	return class, wrong
}

// schedulingClass returns a class by name; nil if there is none.
func (p *Policy) schedulingClass(name string) *SchedulingOptions {
	i := slices.IndexFunc(p.Options.SchedulingClasses, func(c SchedulingOptions) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &p.Options.SchedulingClasses[i]
}

// from returns the class for a container. key is the key that gives it the class.
func (o *SchedulingOptions) from(key string) lifecycle.SchedulingClass {
	class := lifecycle.SchedulingClass{Name: o.Name, From: key}
	if s := o.scheduler(); s != nil {
		class.Scheduler = s.Text()
	}
	if io := o.ioPriority(); io != nil {
		class.IOPriority = io.Text()
	}
	return class
}
