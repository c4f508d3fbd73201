package hookserver

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

const (
	// eventTimeout is the time that all servers together may take for one event. If the event has an earlier deadline,
	// that deadline applies. The time is less than the two seconds that NRI runtimes wait for a plugin.
	eventTimeout = 1500 * time.Millisecond
	// maxNotices limits the number of notices that wait to be sent to the servers. A notice tells servers of a past
	// event.
	maxNotices = 1024
)

// SkipLabel is a pod label. If its value is "true", the agent calls no hook server for the pod. Koordinator's runtime
// proxy reads the same label.
const SkipLabel = "runtimeproxy.koordinator.sh/skip-hookserver"

func skipsPod(p *lifecycle.Pod) bool { return p.Labels[SkipLabel] == "true" }

// Refusal is the error of Ask if a call failed and the server's failure-policy is Fail. The event, such as the creation
// of a container, must also fail.
type Refusal struct {
	Server string // the name of the server's file
	Err    error  // the error of the call
}

// Error returns the message for the kubelet.
func (r *Refusal) Error() string {
	return fmt.Sprintf("hook server %s: %v; its failure-policy is Fail", r.Server, r.Err)
}

// Unwrap returns the error of the call.
func (r *Refusal) Unwrap() error { return r.Err }

// serversOf returns the servers that are registered for a stage, in the order in which the agent calls them.
func (s *Servers) serversOf(stage Stage) []*server {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []*server
	for _, name := range s.callOrder {
		if f := s.files[name]; f != nil && f.server != nil && f.server.servesStage(stage) {
			out = append(out, f.server)
		}
	}
	return out
}

// Asks reports whether at least one server is registered for a kind of event.
func (s *Servers) Asks(kind lifecycle.Kind) bool {
	stage, ok := stageOf(kind)
	return ok && len(s.serversOf(stage.Stage)) > 0
}

// Ask calls the servers of an event's stage one after the other. Each request includes the changes that the earlier
// servers answered. Ask returns when all servers have answered, at the latest after eventTimeout. Ask does not change
// the event's pod and container. If the call of a server with the policy Fail fails, the error is a *Refusal. If the
// call of a server with the policy Ignore fails, Ask goes on, and adds a problem to the answer that it returns.
func (s *Servers) Ask(ctx context.Context, ev *lifecycle.Event) (lifecycle.HookServerAnswer, error) {
	stage, ok := stageOf(ev.Kind)
	if !ok || ev.Pod == nil || skipsPod(ev.Pod) {
		return lifecycle.HookServerAnswer{}, nil
	}
	servers := s.serversOf(stage.Stage)
	if len(servers) == 0 {
		return lifecycle.HookServerAnswer{}, nil
	}
	end := time.Now().Add(eventTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	c := stageCall{s, stage, servers, end}
	if stage.isForPods() {
		return c.callForPod(ctx, podRequest(ev.Pod))
	}
	if ev.Container == nil {
		return lifecycle.HookServerAnswer{}, nil
	}
	return c.callForContainer(ctx, containerRequest(ev.Pod, ev.Container, ev.Kind == lifecycle.CreateContainer))
}

// isForPods reports whether the requests of the stage describe a pod. Otherwise they describe a container.
func (i StageDescription) isForPods() bool {
	return i.Kind == lifecycle.RunPodSandbox || i.Kind == lifecycle.StopPodSandbox
}

// stageCall calls all servers of a stage for one event, until a deadline.
type stageCall struct {
	*Servers

	stage    StageDescription
	servers  []*server
	deadline time.Time
}

// callForPod calls the servers for an event of a pod.
func (c *stageCall) callForPod(ctx context.Context, first *hooks.PodSandboxHookRequest) (lifecycle.HookServerAnswer, error) {
	var out lifecycle.HookServerAnswer
	req := first
	for _, srv := range c.servers {
		resp := &hooks.PodSandboxHookResponse{}
		if err := srv.call(ctx, c.deadline, c.stage, req, resp); err != nil {
			if err := c.handleFailure(srv, c.stage, err, &out); err != nil {
				return out, err
			}
			continue
		}
		if c.stage.AnswerApplies {
			var problems []lifecycle.Problem
			req, problems = mergePod(srv.name, req, resp)
			out.Problems = lifecycle.LimitProblems(append(out.Problems, problems...), lifecycle.MaxProblems)
		}
	}
	out.Labels, out.Annotations = changedEntries(first.Labels, req.Labels), changedEntries(first.Annotations, req.Annotations)
	return out, nil
}

// changedEntries returns the entries of newMap that oldMap lacks, or has with another value. It returns nil if there
// are no such entries.
func changedEntries(oldMap, newMap map[string]string) map[string]string {
	var out map[string]string
	for k, v := range newMap {
		if old, had := oldMap[k]; had && old == v {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[k] = v
	}
	return out
}

// callForContainer calls the servers for an event of a container.
func (c *stageCall) callForContainer(ctx context.Context, first *hooks.ContainerResourceHookRequest) (lifecycle.HookServerAnswer, error) {
	var out lifecycle.HookServerAnswer
	setBy := map[settingID]string{} // the name of the last server that changed each setting
	req := first
	for _, srv := range c.servers {
		resp := &hooks.ContainerResourceHookResponse{}
		if err := srv.call(ctx, c.deadline, c.stage, req, resp); err != nil {
			if err := c.handleFailure(srv, c.stage, err, &out); err != nil {
				return out, err
			}
			continue
		}
		if !c.stage.AnswerApplies {
			continue
		}
		next, problems := mergeContainer(srv.name, req, resp)
		if len(c.servers) > 1 {
			for _, v := range changedValues(req, next) {
				setBy[settingID{v.Field, v.Key}] = srv.name
			}
		}
		out.Problems = lifecycle.LimitProblems(append(out.Problems, problems...), lifecycle.MaxProblems)
		req = next
	}
	for _, v := range changedValues(first, req) {
		source := c.servers[0].name
		if len(c.servers) > 1 {
			source = setBy[settingID{v.Field, v.Key}]
		}
		v.Why = lifecycle.Reason{Hook: lifecycle.HookServerName, Source: source, Text: "answered at " + string(c.stage.Stage)}
		out.Values = append(out.Values, v)
	}
	return out, nil
}

// handleFailure handles a failed call of a server. If the server's policy is Fail and the event waits for the call,
// handleFailure returns a *Refusal. Otherwise it adds a problem to out, and returns nil.
func (s *Servers) handleFailure(srv *server, stage StageDescription, err error, out *lifecycle.HookServerAnswer) error {
	if srv.registration.Policy == Fail && stage.EventWaits {
		return &Refusal{srv.name, err}
	}
	s.opts.Log.Warn("a call of a hook server failed; the agent continues without an answer of this server", logkey.File, srv.name, logkey.Event, string(stage.Stage), logkey.Err, err)
	out.Problems = append(out.Problems, lifecycle.Problem{
		Hook: lifecycle.HookServerName, Key: srv.name, Value: string(stage.Stage), Reason: err.Error(), Then: "the agent continues as if the server did not exist", Warning: true,
	})
	return nil
}

// notice is a request that tells servers of a past event. The agent ignores the answers. Exactly one of the fields pod
// and container is set.
type notice struct {
	stage     StageDescription
	pod       *hooks.PodSandboxHookRequest
	container *hooks.ContainerResourceHookRequest
}

// Notify queues a notice about a past event for the servers. Servers get notices in the order of the events. Notify
// does not wait: if the queue already has maxNotices notices, Notify drops the new notice.
func (s *Servers) Notify(ev *lifecycle.Event) {
	stage, ok := stageOf(ev.Kind)
	if !ok || stage.EventWaits || ev.Pod == nil || skipsPod(ev.Pod) || len(s.serversOf(stage.Stage)) == 0 {
		return
	}
	t := notice{stage: stage}
	switch {
	case stage.isForPods():
		t.pod = podRequest(ev.Pod)
	case ev.Container != nil:
		t.container = containerRequest(ev.Pod, ev.Container, false)
	default:
		return
	}
	select {
	case s.notices <- t:
	default:
		s.opts.Log.Warn("the agent did not notify hook servers of an event: too many notices are pending", logkey.Event, string(stage.Stage))
	}
}

// notifyAll sends notices from the queue until ctx ends. It ignores the servers' answers.
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
					s.opts.Log.Warn("the agent could not notify a hook server of an event", logkey.File, srv.name, logkey.Event, string(t.stage.Stage), logkey.Err, err)
				}
			}
		}
	}
}
