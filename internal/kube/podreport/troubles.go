package podreport

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/kube/events"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
)

// Recorder creates Kubernetes events; *events.Recorder implements it.
type Recorder interface {
	// Warn creates a warning event about an object.
	Warn(about events.About, reason events.Reason, text string)
	// AddLost counts n events of the node's journal that the journal dropped before they were read. No Kubernetes
	// events can be created for them.
	AddLost(n uint64)
}

// ProblemEvents creates Kubernetes events about the problems of pods. A pod gets one event for each reason, and another
// one when a problem with a new text appears.
type ProblemEvents struct {
	node     Node
	recorder Recorder
	// Debounce is how long changes are collected; tests shorten it.
	Debounce time.Duration

	recorded map[events.About]map[events.Reason][]string // the texts of created events, by pod and reason
}

// NewProblemEvents makes a ProblemEvents.
func NewProblemEvents(n Node, to Recorder) *ProblemEvents {
	return &ProblemEvents{node: n, recorder: to, Debounce: debounce, recorded: map[events.About]map[events.Reason][]string{}}
}

// Run creates Kubernetes events until ctx ends.
func (t *ProblemEvents) Run(ctx context.Context) { watch(ctx, t.node, t.Debounce, t.recordNew) }

// podTexts has the texts about the problems of one pod, by reason of the event.
type podTexts map[events.Reason][]string

// add adds a text, unless the reason has it already.
func (f podTexts) add(r events.Reason, text string) {
	if !slices.Contains(f[r], text) {
		f[r] = append(f[r], text)
	}
}

// recordNew creates Kubernetes events for new problems: those in the given events of the journal, and those in the
// state of each pod. lost is the number of events that the journal dropped before they were read.
func (t *ProblemEvents) recordNew(journal []api.Event, lost uint64) {
	if lost > 0 {
		t.recorder.AddLost(lost)
	}
	all := map[events.About]podTexts{}
	textsAbout := func(about events.About) podTexts {
		if all[about] == nil {
			all[about] = podTexts{}
		}
		return all[about]
	}
	for i := range journal {
		if about, ok := podOfEvent(&journal[i]); ok {
			addEventProblems(textsAbout(about), &journal[i])
		}
	}
	for _, id := range nodeview.Sandboxes(t.node) {
		if s, ok := nodeview.StateOf(t.node, id); ok && s.UID != "" {
			addStateProblems(textsAbout(events.About{Kind: "Pod", Namespace: s.Namespace, Name: s.Name, UID: s.UID}), &s)
		}
	}
	for about, f := range all {
		t.record(about, f)
	}
	// Forget the texts of ended pods. This possibly also forgets a pod whose container was rejected: the next rejection
	// then creates an event again.
	maps.DeleteFunc(t.recorded, func(about events.About, _ map[events.Reason][]string) bool { return all[about] == nil })
}

// record creates an event for each reason that has a new text.
func (t *ProblemEvents) record(about events.About, f podTexts) {
	if t.recorded[about] == nil {
		t.recorded[about] = map[events.Reason][]string{}
	}
	recorded := t.recorded[about]
	for _, reason := range slices.Sorted(maps.Keys(f)) {
		var fresh []string
		for _, text := range f[reason] {
			if !slices.Contains(recorded[reason], text) {
				fresh = append(fresh, text)
			}
		}
		if len(fresh) == 0 {
			continue
		}
		recorded[reason] = append(recorded[reason], fresh...)
		if excess := len(recorded[reason]) - maxRemembered; excess > 0 {
			recorded[reason] = recorded[reason][excess:]
		}
		t.recorder.Warn(about, reason, eventMessage(about, f[reason]))
	}
}

const (
	// maxRemembered is how many texts of created events are stored for a pod and reason. maxListed is how many texts
	// one message lists.
	maxRemembered = 4 * lifecycle.MaxProblems
	maxListed     = 3
)

// eventMessage returns the message of an event: the first texts, and the number of the other ones.
func eventMessage(about events.About, texts []string) string {
	out := strings.Join(texts[:min(maxListed, len(texts))], " | ")
	if more := len(texts) - maxListed; more > 0 {
		out += fmt.Sprintf(" | and %d more, see trimtab explain %s/%s", more, about.Namespace, about.Name)
	}
	return out
}

// podOfEvent returns the pod of a journal event; false if the event has no pod.
func podOfEvent(e *api.Event) (events.About, bool) {
	namespace, name, ok := strings.Cut(e.Pod, "/")
	return events.About{Kind: "Pod", Namespace: namespace, Name: name, UID: e.PodUID}, ok && e.PodUID != ""
}

// addEventProblems adds the problems of one journal event. They are read from the event, because the state of the pod
// possibly does not have them any more.
func addEventProblems(f podTexts, e *api.Event) {
	if e.Rejected != "" {
		f.add(events.ContainerRejected, containerPrefix(e.Container)+e.Rejected)
	}
	for _, p := range e.Problems {
		f.add(reasonOf(p), problemText(p))
	}
}

// addStateProblems adds the present problems of a pod, and its values that are not in force.
func addStateProblems(f podTexts, s *nodeview.PodState) {
	for _, p := range s.Problems {
		f.add(reasonOf(p), problemText(p))
	}
	for _, m := range s.Missing {
		if reason, ok := missingReasons[m.Reason]; ok {
			f.add(reason, containerPrefix(m.Container)+m.Setting+" is not in force: "+m.Note)
		}
	}
}

// missingReasons has the event reasons for values that are not in force. A value that the configuration leaves to
// another program is not a problem and has no reason here.
var missingReasons = map[api.MissingReason]events.Reason{
	api.NoCgroup:      events.CgroupMissing,
	api.NotCarried:    events.ValueNotCarried,
	api.CreateOnly:    events.ValueTooLate,
	api.BadCgroup:     events.ValueRefused,
	api.KernelRefused: events.ValueRefused,
	api.LeftAlone:     events.ValueContested,
	api.Differs:       events.WouldDiffer,
}

// reasonOf returns the event reason for a problem.
func reasonOf(p lifecycle.Problem) events.Reason {
	switch {
	case p.Key == nodeview.ConflictKey:
		return events.CreationFailed
	case p.Unserved:
		return events.RequestUnserved
	case p.Hook != "":
		return events.HookFailed
	case p.Warning:
		return events.RequestDegraded
	case p.Refused:
		return events.RequestRefused
	}
	return events.RequestMalformed
}

// problemText returns the problem as text, with what the agent does instead.
func problemText(p lifecycle.Problem) string {
	if p.Then == "" {
		return p.String()
	}
	return p.String() + "; " + p.Then
}

// containerPrefix returns the beginning of a text about a container; "" for a text about the whole pod.
func containerPrefix(container string) string {
	if container == "" {
		return ""
	}
	return "container " + container + ": "
}
