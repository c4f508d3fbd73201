package conductor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// observer compares the decided values with the node in mode observe. In this mode the agent decides all events and
// changes nothing: answers are empty, the keeper writes nothing (keeper.Observe), and no runtime gets an update.
type observer struct {
	mu                  sync.Mutex                    // guards the fields below; always locked after node.mu
	comparisons         map[setting]keeper.Comparison // the results of the last call of Compare
	reportedDifferences map[string]string             // the last reported differences, by id of the container or pod
}

// setting identifies a setting of a container or pod.
type setting struct {
	owner string // the id of the container or sandbox
	field lifecycle.Field
	key   string // distinguishes settings of one field, for example the name of a cgroup file; "" if not needed
}

func settingOf(owner string, v lifecycle.Value) setting { return setting{owner, v.Field, v.Key} }

// observedCarrier is an attachment in mode observe. It adds no record to containers, so the agent stores the
// containers' records only in memory.
type observedCarrier struct{ Carrier }

// Capabilities returns the attachment's capabilities, without annotations at a creation.
func (o observedCarrier) Capabilities() Capabilities {
	can := o.Carrier.Capabilities()
	can.Create = can.Create.Without(lifecycle.Annotation)
	return can
}

// carrierInMode returns the attachment itself in mode enforce, and an observedCarrier in mode observe.
func (c *Conductor) carrierInMode(from Carrier) Carrier {
	if c.observer == nil || from == nil {
		return from
	}
	return observedCarrier{from}
}

// answerFor returns the answer for the attachment. In mode observe (o is not nil), it returns an empty answer.
func (o *observer) answerFor(a Answer, err error) (Answer, error) {
	if o == nil {
		return a, err
	}
	return Answer{Op: a.Op}, nil
}

// Compare compares the decided values with the values on the node. It does nothing in mode enforce.
func (c *Conductor) Compare() {
	if c.observer == nil {
		return
	}
	all := map[setting]keeper.Comparison{}
	for _, r := range c.keeper.Compare() {
		all[settingOf(r.Target.Owner, r.Value)] = r
	}
	c.observer.mu.Lock()
	defer c.observer.mu.Unlock()
	c.observer.comparisons = all
}

// result returns the result for a value in mode observe. A value that the node already has counts as applied.
func (o *observer) result(owner string, v lifecycle.Value) applyResult {
	o.mu.Lock()
	r, compared := o.comparisons[settingOf(owner, v)]
	o.mu.Unlock()
	d := applyResult{Field: v.Field, Key: v.Key, Value: v.String(), Channel: "observe"}
	switch {
	case compared && r.Value.String() == d.Value && r.Same:
		d.Applied, d.Note = true, "the node already has this value; the agent wrote nothing"
	case compared && r.Value.String() == d.Value:
		d.Missing, d.NodeValue, d.Note = api.Differs, r.KernelText, fmt.Sprintf("the node has %s; the agent writes nothing (mode: observe)", cmp.Or(r.KernelText, "no value"))
	case route.IsCopied(v.Field) || v.Field == lifecycle.Unified:
		d.Missing, d.Note = api.NotYet, "not compared yet; the agent writes nothing (mode: observe)"
	default:
		d.Missing, d.Note = api.NotCompared, "cannot be compared; the agent writes nothing (mode: observe)"
	}
	return d
}

// counts returns how many values were compared, and how many of them differ on the node. The field Settings has the
// number of differing values by name of the setting.
func (o *observer) counts() *api.Observed {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := &api.Observed{Compared: len(o.comparisons), Settings: map[string]int{}}
	for _, r := range o.comparisons {
		if name := r.Setting(); r.Same {
			out.Settings[name] += 0
		} else {
			out.Differ++
			out.Settings[name]++
		}
	}
	return out
}

// reportDifferences compares the decided values with the values on the node. It writes one entry to the log and one to
// the journal for each container and pod whose differences have changed since the last call. For a container or pod
// that no longer has a difference, reportDifferences writes only to the journal.
func (c *Conductor) reportDifferences() {
	if c.observer == nil {
		return
	}
	c.Compare()
	now := map[string][]string{}
	c.observer.mu.Lock()
	for _, r := range c.observer.comparisons {
		if owner := r.Target.Owner; !r.Same {
			now[owner] = append(now[owner], fmt.Sprintf("%s: the node has %s, Trimtab would set %s", r.Value.Setting(), cmp.Or(r.KernelText, "no value"), r.Value.String()))
		}
	}
	before := c.observer.reportedDifferences
	c.observer.reportedDifferences = make(map[string]string, len(now))
	var changed []string
	for owner, texts := range now {
		slices.Sort(texts)
		c.observer.reportedDifferences[owner] = strings.Join(texts, "\n")
		if before[owner] != c.observer.reportedDifferences[owner] {
			changed = append(changed, owner)
		}
	}
	var ended []string
	for _, owner := range slices.Sorted(maps.Keys(before)) {
		if now[owner] == nil {
			ended = append(ended, owner)
		}
	}
	c.observer.mu.Unlock()
	slices.Sort(changed)
	for _, owner := range changed {
		c.log.Info("values of a container or pod differ from the values that Trimtab would set", append(c.reports.OwnerAttrs(owner), logkey.Changed, now[owner])...)
		c.reports.ReportDifferences(owner, now[owner])
	}
	for _, owner := range ended {
		c.reports.ReportDifferences(owner, nil)
	}
}

// applyResult returns the result for a value of a container or pod, for status and explain.
func (c *Conductor) applyResult(owner string, v lifecycle.Value) (nodeview.ApplyResult, bool) {
	if c.observer != nil {
		return c.observer.result(owner, v), true
	}
	return c.node.tracks[owner].find(v)
}
