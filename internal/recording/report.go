package recording

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Report is the result of a replay.
type Report struct {
	Version string    `json:"recordedBy"` // the version of the agent that made the recording
	Time    time.Time `json:"recorded"`   // when the recording began
	// WithoutEnv reports whether the recording lacks the values of environment variables.
	WithoutEnv bool   `json:"withoutEnv,omitempty"`
	Events     uint64 `json:"events"`
	// Differing is the number of events whose replayed decision differs from the recorded one.
	Differing uint64 `json:"differing"`
	// Lost is the number of events that the recording lacks.
	Lost        uint64       `json:"lost,omitempty"`
	Differences []Difference `json:"differences"`
}

// Difference is a setting of a container, pod or pool whose recorded and replayed values differ. "" means no value.
type Difference struct {
	Seq     uint64 `json:"seq"` // the first event with this difference; 0 for the state when the recording began
	Event   string `json:"event,omitempty"`
	Owner   string `json:"owner"` // namespace/pod, namespace/pod/container, or "pool " and the kind of a pool
	Setting string `json:"setting"`
	// Recorded and Replayed are the values at the last event with this difference. Why is the reason for the
	// replayed value.
	Recorded string `json:"recorded"`
	Replayed string `json:"replayed"`
	Why      string `json:"why,omitempty"`
	Events   int    `json:"events"` // number of events with this difference
}

// Same reports whether all replayed decisions equal the recorded decisions.
func (r *Report) Same() bool { return r.Differing == 0 && len(r.Differences) == 0 }

// Sort sorts the differences by owner, setting and event.
func (r *Report) Sort() {
	slices.SortFunc(r.Differences, func(a, b Difference) int {
		return cmp.Or(strings.Compare(a.Owner, b.Owner), strings.Compare(a.Setting, b.Setting), cmp.Compare(a.Seq, b.Seq))
	})
}

// compare adds the differences between two decisions about a container or pod to the report.
func (r *replay) compare(seq uint64, event string, was, now OwnerDecision) {
	row := func(setting, recorded, replayed, why string) {
		if recorded != replayed {
			r.addDifference(Difference{Seq: seq, Event: event, Owner: now.Name, Setting: setting, Recorded: recorded, Replayed: replayed, Why: why})
		}
	}
	why := r.poolReason(now.ID)
	row("pool", was.Pool, now.Pool, why)
	row("CPUs", was.CPUs, now.CPUs, why)
	had, has := valuesBySetting(was.Values), valuesBySetting(now.Values)
	for name, v := range has {
		row(name, valueText(had[name]), valueText(v), valueReason(v))
	}
	for name, v := range had {
		if has[name] == nil {
			row(name, valueText(v), "", "")
		}
	}
	row("problems", problemTexts(was.Problems), problemTexts(now.Problems), "")
}

// poolReason returns the reason for a container's pool: the key that set its class, and the reason of the placement.
func (r *replay) poolReason(id string) string {
	c := r.state.Container(id)
	if c == nil {
		return ""
	}
	return strings.Trim(r.state.Pod(c.PodID).Intent.Class.Key+": "+c.Assignment.Why, ": ")
}

// valuesBySetting returns pointers to the values, by the name of their setting.
func valuesBySetting(values []lifecycle.Value) map[string]*lifecycle.Value {
	out := make(map[string]*lifecycle.Value, len(values))
	for i := range values {
		out[values[i].Setting()] = &values[i]
	}
	return out
}

// valueText returns the text of a value; "" if v is nil.
func valueText(v *lifecycle.Value) string {
	if v == nil {
		return ""
	}
	return v.String()
}

// valueReason returns the hook that decided a value, and its reason.
func valueReason(v *lifecycle.Value) string {
	return strings.Trim(fmt.Sprintf("%s: %s", v.Why.Hook, cmp.Or(v.Why.Text, v.Why.Source)), ": ")
}

// problemTexts joins the texts of problems.
func problemTexts(all []lifecycle.Problem) string {
	var out []string
	for _, p := range all {
		out = append(out, p.String())
	}
	return strings.Join(out, "; ")
}

// addDifference adds a difference to the report. If the report already has a difference for the same owner and setting,
// addDifference updates the values of this difference.
func (r *replay) addDifference(d Difference) {
	key := [2]string{d.Owner, d.Setting}
	at, known := r.differenceIndex[key]
	if !known {
		r.differenceIndex[key] = len(r.report.Differences)
		d.Events = 1
		r.report.Differences = append(r.report.Differences, d)
		return
	}
	old := &r.report.Differences[at]
	old.Events++
	old.Recorded, old.Replayed, old.Why = d.Recorded, d.Replayed, d.Why
}
