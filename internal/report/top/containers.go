package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// Use is what a container has used between two samples.
type Use struct {
	api.ContainerUse

	CPUs float64 // on average
	// Stopped is the part of the periods of its CPU limit in which the limit stopped it, 0 to 1; -1 if it had none.
	Stopped float64
}

// much is the part of periods or time, in percent, from which waiting is coloured.
const much = 10

// wrong reports whether a container waits so much that the view colours it.
func (u Use) wrong() bool { return 100*u.Stopped >= much || u.Pressure >= much }

// since returns what each container has used between two readings, by id. It leaves out containers that are not in
// both.
func since(before, now api.Usage) map[string]Use {
	elapsed := now.At.Sub(before.At)
	if elapsed <= 0 {
		return nil
	}
	earlier := map[string]api.ContainerUse{}
	for _, c := range before.Containers {
		earlier[c.ID] = c
	}
	out := map[string]Use{}
	for _, c := range now.Containers {
		was, known := earlier[c.ID]
		if !known || c.Used < was.Used {
			continue
		}
		u := Use{ContainerUse: c, CPUs: float64(c.Used-was.Used) / float64(elapsed), Stopped: -1}
		if periods := c.Periods - was.Periods; periods > 0 {
			u.Stopped = float64(max(c.Throttled-was.Throttled, 0)) / float64(periods)
		}
		out[c.ID] = u
	}
	return out
}

// containers returns the table of containers, those that use most first.
func (f Frame) containers() []string {
	if len(f.Used) == 0 {
		return nil
	}
	limits := map[string]string{}
	for _, c := range f.Node.Containers {
		if c.Limits != nil && c.Limits.CPUQuota > 0 && c.Limits.CPUPeriod > 0 {
			limits[c.ID] = term.CPUs(c.Limits.CPUQuota * 1000 / c.Limits.CPUPeriod)
		}
	}
	list := make([]Use, 0, len(f.Used))
	for _, u := range f.Used {
		list = append(list, u)
	}
	label := func(u Use) string { return term.Clean(u.Pod + "/" + u.Container) }
	slices.SortFunc(list, func(a, b Use) int {
		by := cmp.Or(cmp.Compare(label(a), label(b)), cmp.Compare(a.ID, b.ID))
		if f.ByName {
			return by
		}
		return cmp.Or(cmp.Compare(b.CPUs, a.CPUs), by)
	})
	name := len("CONTAINER")
	for _, u := range list {
		name = max(name, len([]rune(label(u))))
	}
	name = min(name, max(f.Width-40, 12))
	lines := []string{"", f.paint(term.Dim, f.cut(fmt.Sprintf("  %-*s      USED     LIMIT  THROTTLED  WAITS", name, "CONTAINER")))}
	for _, u := range list {
		line := f.cut(fmt.Sprintf("  %-*s  %8s  %8s  %9s  %5s", name, term.Cut(label(u), name), cpusText(u.CPUs),
			cmp.Or(limits[u.ID], "max"), percent(100*u.Stopped), percent(u.Pressure)))
		if u.wrong() {
			line = f.paint(term.Yellow, line)
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// percent formats a part, or "-" if it is not known.
func percent(p float64) string {
	if p < 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", p)
}

// cpusText formats a number of CPUs, or "-" if it is not known.
func cpusText(n float64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f CPU", n)
}
