package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// ContainerUsage is how much CPU time a container has used between two samples.
type ContainerUsage struct {
	api.ContainerUse

	CPUs float64 // the mean number of CPUs that the container used
	// ThrottledShare is the share of CFS periods in which the container's CPU limit throttled it, 0 to 1. It is -1 if
	// the container ran in no period, for example because it has no limit.
	ThrottledShare float64
}

// highPercent is the percentage of throttled periods, or of waiting time, from which the view colours a container.
const highPercent = 10

// isHigh reports whether the view colours a container, because it is throttled or waits a lot.
func (u ContainerUsage) isHigh() bool {
	return 100*u.ThrottledShare >= highPercent || u.Pressure >= highPercent
}

// usedBetween returns what each container has used between two readings, by id. It leaves out a container that is in
// only one of the readings, or whose counter decreased.
func usedBetween(before, now api.Usage) map[string]ContainerUsage {
	elapsed := now.At.Sub(before.At)
	if elapsed <= 0 {
		return nil
	}
	earlier := map[string]api.ContainerUse{}
	for _, c := range before.Containers {
		earlier[c.ID] = c
	}
	out := map[string]ContainerUsage{}
	for _, c := range now.Containers {
		was, known := earlier[c.ID]
		if !known || c.Used < was.Used {
			continue
		}
		u := ContainerUsage{ContainerUse: c, CPUs: float64(c.Used-was.Used) / float64(elapsed), ThrottledShare: -1}
		if periods := c.Periods - was.Periods; periods > 0 {
			u.ThrottledShare = float64(max(c.Throttled-was.Throttled, 0)) / float64(periods)
		}
		out[c.ID] = u
	}
	return out
}

// containerLines returns the lines of the table of containers. The busiest container is first, or with ByName the
// container with the first name.
func (f Frame) containerLines() []string {
	if len(f.Used) == 0 {
		return nil
	}
	limits := map[string]string{}
	for _, c := range f.Node.Containers {
		if c.Limits != nil && c.Limits.CPUQuota > 0 && c.Limits.CPUPeriod > 0 {
			limits[c.ID] = term.CPUs(c.Limits.CPUQuota * 1000 / c.Limits.CPUPeriod)
		}
	}
	list := make([]ContainerUsage, 0, len(f.Used))
	for _, u := range f.Used {
		list = append(list, u)
	}
	label := func(u ContainerUsage) string { return term.Clean(u.Pod + "/" + u.Container) }
	slices.SortFunc(list, func(a, b ContainerUsage) int {
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
		line := f.cut(fmt.Sprintf("  %-*s  %8s  %8s  %9s  %5s", name, term.Cut(label(u), name), numberText("%.2f CPU", u.CPUs),
			cmp.Or(limits[u.ID], "max"), numberText("%.0f %%", 100*u.ThrottledShare), numberText("%.0f %%", u.Pressure)))
		if u.isHigh() {
			line = f.paint(term.Yellow, line)
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// numberText formats a number. It returns "-" for a negative number, which stands for an unknown number.
func numberText(format string, n float64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprintf(format, n)
}
