package nodemetric

import (
	"slices"
	"time"
)

// Usage is an amount of CPU and memory that is in use.
type Usage struct {
	Milli int64 // thousandths of a CPU
	Bytes int64
}

// Counter has the kernel's counters of a node or pod at one moment: the CPU time used so far, and the memory in use.
type Counter struct {
	CPU   time.Duration
	Bytes int64
}

// Pod names a pod. QoS and Priority are Koordinator's names of the pod's QoS class and priority class; "" if unknown.
type Pod struct{ Namespace, Name, UID, QoS, Priority string }

// Reading has the counters of a node at one moment.
type Reading struct {
	At   time.Time
	Node Counter
	Pods map[Pod]Counter
}

// Policy has the interval of the reports and the times over which they aggregate usage. In fields that are zero,
// WithDefaults sets Koordinator's defaults.
type Policy struct {
	Interval  time.Duration   // time between two reports; default 1 min
	Average   time.Duration   // time over which usage is averaged; default 5 min
	Durations []time.Duration // times for which percentiles are reported; default 5 min, 10 min, 30 min
}

// retention is the age up to which History stores readings.
const retention = 30 * time.Minute

// WithDefaults returns the policy with the defaults in the fields that are not set. It limits Interval to 30 s or more,
// Average to 1 min or more, and both to retention. It leaves out durations that are longer than retention.
func (p Policy) WithDefaults() Policy {
	setDefault := func(d *time.Duration, least, byDefault time.Duration) {
		if *d <= 0 {
			*d = byDefault
		}
		*d = min(max(*d, least), retention)
	}
	setDefault(&p.Interval, 30*time.Second, time.Minute) // koordlet, too, uses an interval of at least 30 s
	setDefault(&p.Average, time.Minute, 5*time.Minute)
	if p.Durations == nil {
		p.Durations = []time.Duration{5 * time.Minute, 10 * time.Minute, retention}
	}
	p.Durations = slices.DeleteFunc(slices.Clone(p.Durations), func(d time.Duration) bool { return d <= 0 || d > retention })
	return p
}

// History has the readings of the last half hour, the oldest first. The zero value is an empty history.
type History struct{ readings []Reading }

// Add adds a reading, and drops readings that are older than retention. It drops the field Pods of readings that are
// older than average.
func (h *History) Add(r Reading, average time.Duration) {
	h.readings = slices.DeleteFunc(append(h.readings, r), func(o Reading) bool { return r.At.Sub(o.At) > retention })
	for i := range h.readings {
		if r.At.Sub(h.readings[i].At) > average {
			h.readings[i].Pods = nil
		}
	}
}

// lastReadings returns the readings that are at most d older than the newest reading. It also returns the time between
// the first and the last of these readings.
func (h *History) lastReadings(d time.Duration) ([]Reading, time.Duration) {
	if len(h.readings) == 0 {
		return nil, 0
	}
	end := h.readings[len(h.readings)-1].At
	i := slices.IndexFunc(h.readings, func(r Reading) bool { return end.Sub(r.At) <= d })
	return h.readings[i:], end.Sub(h.readings[i].At)
}

// CanReport reports whether there are enough readings for a report, at least two.
func (h *History) CanReport() bool { return len(h.readings) > 1 }

// meanUsage returns the mean usage of a node or pod from its counters at several moments.
func meanUsage(all []timedCounter) Usage {
	if len(all) == 0 {
		return Usage{}
	}
	var bytes int64
	for _, m := range all {
		bytes += m.Bytes
	}
	return Usage{Milli: cpuRate(all[0], all[len(all)-1]), Bytes: bytes / int64(len(all))}
}

// timedCounter has the counters of a node or pod, with the time of the reading.
type timedCounter struct {
	Counter

	at time.Time
}

// cpuRate returns the CPU used between two moments, in thousandths of a CPU. It returns 0 if the counter decreased,
// which means that the cgroup was removed and another cgroup has the same name.
func cpuRate(from, to timedCounter) int64 {
	d := to.at.Sub(from.at)
	if d <= 0 || to.CPU < from.CPU {
		return 0
	}
	const milli = 1000
	return int64(float64(to.CPU-from.CPU) / float64(d) * milli)
}

// nodeCounters returns the counters of the node in all readings.
func nodeCounters(all []Reading) []timedCounter {
	out := make([]timedCounter, len(all))
	for i, r := range all {
		out[i] = timedCounter{r.Node, r.At}
	}
	return out
}

// podCounters returns the counters of a pod in the readings that have the pod.
func podCounters(all []Reading, p Pod) (out []timedCounter) {
	for _, r := range all {
		if c, has := r.Pods[p]; has {
			out = append(out, timedCounter{c, r.At})
		}
	}
	return out
}

// podsUsage returns the mean usage of each pod that is in the last reading and in at least one earlier reading.
func podsUsage(all []Reading) map[Pod]Usage {
	out := map[Pod]Usage{}
	if len(all) == 0 {
		return out
	}
	for p := range all[len(all)-1].Pods {
		if m := podCounters(all, p); len(m) > 1 {
			out[p] = meanUsage(m)
		}
	}
	return out
}

// percentiles returns the usage at each percentile in percent. For the percentile 90, for example, 90 percent of the
// readings do not exceed the returned usage. It computes CPU and memory separately.
func percentiles(all []timedCounter, percent []int) []Usage {
	var milli, bytes []int64
	for i := 1; i < len(all); i++ {
		milli = append(milli, cpuRate(all[i-1], all[i]))
		bytes = append(bytes, all[i].Bytes)
	}
	slices.Sort(milli)
	slices.Sort(bytes)
	out := make([]Usage, len(percent))
	for i, p := range percent {
		at := (len(milli)*p+99)/100 - 1
		out[i] = Usage{milli[max(at, 0)], bytes[max(at, 0)]}
	}
	return out
}
