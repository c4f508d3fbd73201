package podreport

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/kube/events"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
)

type said []string

func (s *said) Warn(about events.About, reason events.Reason, text string) {
	*s = append(*s, about.Name+" "+string(reason)+" "+text)
}
func (*said) AddLost(uint64) {}

// TestSaidOnce: a pod has one event for each reason, and another one when there is a new text.
func TestSaidOnce(t *testing.T) {
	var to said
	s := NewProblemEvents(nil, &to)
	about := events.About{Kind: "Pod", Namespace: "a", Name: "p", UID: "u"}
	for _, f := range []podTexts{
		{events.HookFailed: {"x"}, events.RequestRefused: {"y"}},
		{events.HookFailed: {"x"}},
		{events.HookFailed: {"x", "z"}},
	} {
		s.record(about, f)
	}
	if want := "[p HookFailed x p RequestRefused y p HookFailed x | z]"; fmt.Sprint(to) != want {
		t.Errorf("said %v, want %s", to, want)
	}
}

// TestReasons: each problem and each value that is not in force has its reason; a value that waits, or was
// ceded, has none.
func TestReasons(t *testing.T) {
	f := podTexts{}
	addStateProblems(f, &nodeview.PodState{
		Problems: []lifecycle.Problem{
			{Key: "k", Value: "v", Reason: "malformed"}, {Reason: "refused", Refused: true, Then: "the pod shares CPUs"}, {Reason: "unserved", Unserved: true},
			{Reason: "doubt", Warning: true}, {Reason: "broken", Hook: "gpu"},
		},
		Missing: []nodeview.MissingValue{
			{Container: "c", Setting: "cpu.max", Reason: api.KernelRefused, Note: "EBUSY"}, {Setting: "s", Reason: api.NotCarried}, {Setting: "s", Reason: api.CreateOnly},
			{Setting: "s", Reason: api.LeftAlone}, {Setting: "s", Reason: api.NoCgroup}, {Setting: "s", Reason: api.BadCgroup}, {Setting: "s", Reason: api.Ceded}, {Setting: "s", Reason: api.NotYet},
		},
	})
	addEventProblems(f, &api.Event{Container: "c", Rejected: "no"})
	for reason, want := range map[events.Reason]string{
		events.RequestMalformed: `k: "v": malformed`, events.RequestRefused: "refused; the pod shares CPUs", events.RequestUnserved: "unserved",
		events.RequestDegraded: "doubt", events.HookFailed: "broken", events.ContainerRejected: "container c: no",
		events.ValueRefused: "container c: cpu.max is not in force: EBUSY", events.ValueNotCarried: "s is", events.ValueTooLate: "s is",
		events.ValueContested: "s is", events.CgroupMissing: "s is",
	} {
		if len(f[reason]) == 0 || !strings.Contains(f[reason][0], want) {
			t.Errorf("%s: %q, want %q", reason, f[reason], want)
		}
		delete(f, reason)
	}
	if len(f) > 0 {
		t.Errorf("also %v", f)
	}
}

// TestEventMessage: a message is short, and names the command for the rest.
func TestEventMessage(t *testing.T) {
	got := eventMessage(events.About{Namespace: "a", Name: "p"}, []string{"1", "2", "3", "4", "5"})
	if got != "1 | 2 | 3 | and 2 more, see trimtab explain a/p" {
		t.Error(got)
	}
}
