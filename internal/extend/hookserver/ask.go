package hookserver

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

const (
	// budget is how long all servers together may take for one event, unless the event's deadline comes first. NRI
	// runtimes wait two seconds for a plugin.
	budget = 1500 * time.Millisecond
	// maxNotices limits the pending notices of past events.
	maxNotices = 1024
)

// SkipLabel with the value "true" exempts a pod from all servers, as with the existing proxies.
const SkipLabel = "runtimeproxy.koordinator.sh/skip-hookserver"

func skipped(p *lifecycle.Pod) bool { return p.Labels[SkipLabel] == "true" }

// Refusal is the failure of a server whose policy is Fail. The event must then fail.
type Refusal struct {
	Server string
	Err    error
}

// Error returns the message for the kubelet.
func (r *Refusal) Error() string {
	return fmt.Sprintf("hook server %s: %v; its failure-policy is Fail", r.Server, r.Err)
}

// Unwrap returns the error of the call.
func (r *Refusal) Unwrap() error { return r.Err }

// serversOf lists the servers of a stage, in order.
func (s *Servers) serversOf(stage Stage) []*server {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []*server
	for _, name := range s.order {
		if f := s.files[name]; f != nil && f.server != nil && f.server.serves(stage) {
			out = append(out, f.server)
		}
	}
	return out
}

// Asks reports whether any server is called for a kind of event.
func (s *Servers) Asks(kind lifecycle.Kind) bool {
	stage, ok := stageOf(kind)
	return ok && len(s.serversOf(stage.Stage)) > 0
}

// Ask asks the servers of an event's stage one after the other. Each server sees the answers of the servers before
// it. Ask returns when all have answered, at the latest after a second and a half. The event's pod and container
// are the stored ones, and Ask does not change them. The error is the *Refusal of a server whose policy is Fail.
// Failures of the other servers are problems in the result.
func (s *Servers) Ask(ctx context.Context, ev *lifecycle.Event) (lifecycle.HookServerAnswer, error) {
	stage, ok := stageOf(ev.Kind)
	if !ok || ev.Pod == nil || skipped(ev.Pod) {
		return lifecycle.HookServerAnswer{}, nil
	}
	servers := s.serversOf(stage.Stage)
	if len(servers) == 0 {
		return lifecycle.HookServerAnswer{}, nil
	}
	end := time.Now().Add(budget)
	if sooner, bounded := ctx.Deadline(); bounded && sooner.Before(end) {
		end = sooner
	}
	q := question{s, stage, servers, end}
	if stage.pod() {
		return q.pod(ctx, podOut(ev.Pod))
	}
	if ev.Container == nil {
		return lifecycle.HookServerAnswer{}, nil
	}
	return q.container(ctx, containerOut(ev.Pod, ev.Container, ev.Kind == lifecycle.CreateContainer))
}

// pod reports whether the stage is about pods.
func (i StageInfo) pod() bool {
	return i.Kind == lifecycle.RunPodSandbox || i.Kind == lifecycle.StopPodSandbox
}

// question is what all servers of a stage are asked, and when the time for it ends.
type question struct {
	*Servers

	stage   StageInfo
	servers []*server
	end     time.Time
}

func (q *question) pod(ctx context.Context, first *hooks.PodSandboxHookRequest) (lifecycle.HookServerAnswer, error) {
	var out lifecycle.HookServerAnswer
	req := first
	for _, srv := range q.servers {
		resp := &hooks.PodSandboxHookResponse{}
		if err := srv.call(ctx, q.end, q.stage, req, resp); err != nil {
			if err := q.failed(srv, q.stage, err, &out); err != nil {
				return out, err
			}
			continue
		}
		if q.stage.Answered {
			var problems []lifecycle.Problem
			req, problems = mergePod(srv.name, req, resp)
			out.Problems = lifecycle.Bound(append(out.Problems, problems...), lifecycle.MaxProblems)
		}
	}
	out.Labels, out.Annotations = newer(first.Labels, req.Labels), newer(first.Annotations, req.Annotations)
	return out, nil
}

// newer returns the entries that another map lacks or has with another value; nil if there are none.
func newer(was, is map[string]string) map[string]string {
	var out map[string]string
	for k, v := range is {
		if old, had := was[k]; had && old == v {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[k] = v
	}
	return out
}

func (q *question) container(ctx context.Context, first *hooks.ContainerResourceHookRequest) (lifecycle.HookServerAnswer, error) {
	var out lifecycle.HookServerAnswer
	said := map[slot]string{} // by setting: the server that set it last
	req := first
	for _, srv := range q.servers {
		resp := &hooks.ContainerResourceHookResponse{}
		if err := srv.call(ctx, q.end, q.stage, req, resp); err != nil {
			if err := q.failed(srv, q.stage, err, &out); err != nil {
				return out, err
			}
			continue
		}
		if !q.stage.Answered {
			continue
		}
		next, problems := mergeContainer(srv.name, req, resp)
		if len(q.servers) > 1 {
			for _, v := range changes(req, next) {
				said[slot{v.Field, v.Key}] = srv.name
			}
		}
		out.Problems = lifecycle.Bound(append(out.Problems, problems...), lifecycle.MaxProblems)
		req = next
	}
	for _, v := range changes(first, req) {
		source := q.servers[0].name
		if len(q.servers) > 1 {
			source = said[slot{v.Field, v.Key}]
		}
		v.Why = lifecycle.Reason{Hook: lifecycle.HookServerName, Source: source, Text: "answered at " + string(q.stage.Stage)}
		out.Values = append(out.Values, v)
	}
	return out, nil
}

// failed notes a failed call. It returns a *Refusal if the server's policy is Fail
// and the event can still be stopped.
func (s *Servers) failed(srv *server, stage StageInfo, err error, out *lifecycle.HookServerAnswer) error {
	if srv.r.Policy == Fail && stage.Waits {
		return &Refusal{srv.name, err}
	}
	s.o.Log.Warn("hook server skipped", logkey.File, srv.name, logkey.Event, string(stage.Stage), logkey.Err, err)
	out.Problems = append(out.Problems, lifecycle.Problem{
		Hook: lifecycle.HookServerName, Key: srv.name, Value: string(stage.Stage), Reason: err.Error(), Then: "as if the server were not there", Warning: true,
	})
	return nil
}

// notice reports a past event to servers.
type notice struct {
	stage     StageInfo
	pod       *hooks.PodSandboxHookRequest
	container *hooks.ContainerResourceHookRequest
}

// Notify reports an event that has ended to the servers, in the order of the events. It does not wait.
func (s *Servers) Notify(ev *lifecycle.Event) {
	stage, ok := stageOf(ev.Kind)
	if !ok || stage.Waits || ev.Pod == nil || skipped(ev.Pod) || len(s.serversOf(stage.Stage)) == 0 {
		return
	}
	t := notice{stage: stage}
	switch {
	case stage.pod():
		t.pod = podOut(ev.Pod)
	case ev.Container != nil:
		t.container = containerOut(ev.Pod, ev.Container, false)
	default:
		return
	}
	select {
	case s.notices <- t:
	default:
		atomic.AddUint64(&s.dropped, 1)
		s.o.Log.Warn("the agent did not notify hook servers of an event: too many notices are pending", logkey.Event, string(stage.Stage))
	}
}

// notifyAll sends the pending notices until ctx ends. It ignores the servers' answers.
func (s *Servers) notifyAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case t := <-s.notices:
			for _, srv := range s.serversOf(t.stage.Stage) {
				var req, resp proto.Message = t.pod, &hooks.PodSandboxHookResponse{}
				if t.pod == nil {
					req, resp = t.container, &hooks.ContainerResourceHookResponse{}
				}
				if err := srv.call(ctx, time.Time{}, t.stage, req, resp); err != nil && ctx.Err() == nil {
					s.o.Log.Warn("the agent could not notify a hook server of an event", logkey.File, srv.name, logkey.Event, string(t.stage.Stage), logkey.Err, err)
				}
			}
		}
	}
}
