package cri

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/attach/relay"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// services are the services in which calls are held. v1alpha2 (Kubernetes before 1.26) has the same fields with the
// same numbers.
var services = []string{"/runtime.v1.RuntimeService/", "/runtime.v1alpha2.RuntimeService/"}

// calls decides the calls that are held.
type calls struct {
	*shared

	fail bool // Options.Fail
}

// heldCall says how a held call is handled.
type heldCall struct {
	hook func(c *calls, ctx context.Context, msg []byte) relay.Verdict
	// ends means that the call ends a pod or container. The agent decides nothing for it, and handles the event
	// after the runtime's answer.
	ends bool
}

// held are the calls that are decoded. All others pass.
var held = map[string]heldCall{
	"RunPodSandbox":             {hook: decode((*calls).runPod)},
	"UpdatePodSandboxResources": {hook: decode((*calls).updatePod)},
	"StopPodSandbox":            {ends: true, hook: decode((*calls).stopPod)},
	"RemovePodSandbox":          {ends: true, hook: decode((*calls).removePod)},
	"CreateContainer":           {hook: (*calls).createContainer},
	"StartContainer":            {hook: decode((*calls).startContainer)},
	"UpdateContainerResources":  {hook: decode((*calls).updateContainer)},
	"StopContainer":             {ends: true, hook: decode((*calls).stopContainer)},
	"RemoveContainer":           {ends: true, hook: decode((*calls).removeContainer)},
}

// decode decodes a request for a call. It passes a malformed request on, because the runtime refuses that itself.
func decode[M any, P interface {
	*M
	proto.Message
}](call func(c *calls, ctx context.Context, req P) relay.Verdict) func(*calls, context.Context, []byte) relay.Verdict {
	return func(c *calls, ctx context.Context, msg []byte) relay.Verdict {
		req := P(new(M))
		if proto.Unmarshal(msg, req) != nil {
			return relay.Verdict{}
		}
		return call(c, ctx, req)
	}
}

// pick says whether to hold a call. It holds no call until the agent knows the running containers.
func (c *calls) pick(path string) relay.Held {
	for _, service := range services {
		method, ours := strings.CutPrefix(path, service)
		if !ours {
			continue
		}
		call, ok := held[method]
		if !ok {
			return relay.Held{}
		}
		switch {
		case c.link.known.Load():
			return relay.Held{Quick: call.ends, Hook: func(ctx context.Context, msg []byte) relay.Verdict {
				return c.decide(ctx, method, call, msg)
			}}
		case c.fail && !c.link.standby.Load() && method == "CreateContainer":
			return relay.Held{Quick: true, Hook: func(context.Context, []byte) relay.Verdict {
				return refuse(codes.Unavailable, "trimtab: the running containers are not known yet; failurePolicy.agent is Fail, so no container starts without a decision. Try again, or set it to Ignore")
			}}
		}
		return relay.Held{}
	}
	return relay.Held{}
}

func refuse(code codes.Code, text string) relay.Verdict {
	return relay.Verdict{Refuse: &relay.Status{Code: code, Text: text}}
}

// decide makes the verdict for one call. After a fault of ours the call passes, unless Fail is set.
func (c *calls) decide(ctx context.Context, method string, call heldCall, msg []byte) (v relay.Verdict) {
	if !connect.RecoverPanic(c.log, method, func() { v = call.hook(c, ctx, msg) }) {
		v = relay.Verdict{}
		if c.fail && method == "CreateContainer" {
			v = refuse(codes.Internal, "trimtab: deciding failed; failurePolicy.agent is Fail, so no container starts without a decision. See the agent's log")
		}
	}
	return v
}

// onConfirmed runs f after the runtime has confirmed a call.
func onConfirmed(f func()) relay.Verdict {
	return relay.Verdict{Done: func(o relay.Outcome) {
		if o.Answered && o.Code == codes.OK {
			f()
		}
	}}
}

// decodeAnswer decodes the runtime's answer to a successful call.
func decodeAnswer(o relay.Outcome, into proto.Message) bool {
	return o.Answered && o.Code == codes.OK && proto.Unmarshal(o.Message, into) == nil
}

func (c *calls) runPod(ctx context.Context, req *cri.RunPodSandboxRequest) relay.Verdict {
	if req.Config == nil {
		return relay.Verdict{}
	}
	v := relay.Verdict{Done: func(o relay.Outcome) {
		resp := &cri.RunPodSandboxResponse{}
		if !decodeAnswer(o, resp) || resp.PodSandboxId == "" {
			return
		}
		p := criclient.PodOfConfig(req.Config, resp.PodSandboxId, req.RuntimeHandler)
		c.store.notePod(p)
		c.events.after(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p})
	}}
	want, err := c.events.beforePod(ctx, criclient.PodOfConfig(req.Config, "", req.RuntimeHandler))
	if err != nil {
		return refuse(codes.FailedPrecondition, err.Error())
	}
	if len(want.Labels)+len(want.Annotations) > 0 {
		req.Config.Labels, req.Config.Annotations = criclient.WithPairs(req.Config.Labels, want.Labels), criclient.WithPairs(req.Config.Annotations, want.Annotations)
		v.Message = c.events.encode(req)
	}
	return v
}

func (c *calls) updatePod(ctx context.Context, req *cri.UpdatePodSandboxResourcesRequest) relay.Verdict {
	c.queues.await(ctx, req.PodSandboxId)
	return onConfirmed(func() {
		c.queues.after(req.PodSandboxId, func(ctx context.Context) {
			p := c.store.pod(req.PodSandboxId)
			if p == nil {
				return
			}
			n := *p
			ev := lifecycle.Event{Kind: lifecycle.UpdatePodSandbox, Pod: &n, Overhead: criclient.Resources(req.Overhead), Requested: criclient.Resources(req.Resources)}
			if ev.Overhead != nil {
				n.Overhead = ev.Overhead
			}
			if ev.Requested != nil {
				n.Resources = ev.Requested
			}
			c.store.notePod(&n)
			c.events.notify(ctx, ev)
		})
	})
}

func (c *calls) stopPod(_ context.Context, req *cri.StopPodSandboxRequest) relay.Verdict {
	return onConfirmed(func() { c.events.endPod(req.PodSandboxId, lifecycle.StopPodSandbox) })
}

func (c *calls) removePod(_ context.Context, req *cri.RemovePodSandboxRequest) relay.Verdict {
	return onConfirmed(func() { c.events.endPod(req.PodSandboxId, lifecycle.RemovePodSandbox) })
}

func (c *calls) stopContainer(_ context.Context, req *cri.StopContainerRequest) relay.Verdict {
	return c.endContainer(req.ContainerId, lifecycle.StopContainer)
}

func (c *calls) removeContainer(_ context.Context, req *cri.RemoveContainerRequest) relay.Verdict {
	return c.endContainer(req.ContainerId, lifecycle.RemoveContainer)
}

func (c *calls) endContainer(id string, kind lifecycle.Kind) relay.Verdict {
	k, p := c.store.container(id)
	if k == nil {
		return relay.Verdict{}
	}
	return onConfirmed(func() { c.events.endContainer(k, p, kind) })
}

// podOf returns the pod of a container that is to be created. It completes the pod from the request if the pod's
// own call passed undecided, or if the runtime could not describe the pod.
func (c *calls) podOf(ctx context.Context, req creation) *lifecycle.Pod {
	c.queues.await(ctx, req.pod)
	known := c.store.pod(req.pod)
	if known != nil && known.Undescribed == "" {
		return known
	}
	p := req.podIn()
	if known != nil {
		p.RuntimeHandler = known.RuntimeHandler
	}
	c.store.notePod(p)
	if known != nil {
		c.lists.retryNow(p.ID)
		c.events.notify(ctx, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p})
	}
	return p
}

func (c *calls) createContainer(ctx context.Context, msg []byte) relay.Verdict {
	req, ok := creationIn(msg)
	if !ok {
		return relay.Verdict{}
	}
	p, asked := c.podOf(ctx, req), req.asked
	asked.ID = c.store.creationID()
	ans, err := c.events.handle(ctx, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: p, Container: asked})
	if err != nil {
		return refuse(codes.FailedPrecondition, err.Error())
	}
	values, rest := c.wrapper.split(c.link.runtimeSeen.Load().kind, ans.Values)
	v := relay.Verdict{Done: func(o relay.Outcome) { c.created(o, p, asked, values) }}
	if len(rest) > 0 {
		var left []lifecycle.Value
		v.Message, v.More, left = c.changed(req, rest)
		c.events.report(asked.Name, left)
	}
	return v
}

// created notes the id that the runtime gave a container, or forgets the container if its creation failed. It also
// forgets a creation without an answer: if the runtime did create the container, the next list has it. The OCI
// runtime wrapper reads the values when the container starts. That start waits for this pod's queue.
func (c *calls) created(o relay.Outcome, p *lifecycle.Pod, decided *lifecycle.Container, values []lifecycle.Value) {
	resp := &cri.CreateContainerResponse{}
	if !decodeAnswer(o, resp) || resp.ContainerId == "" {
		c.events.after(lifecycle.Event{Kind: lifecycle.RemoveContainer, Pod: p, Container: decided})
		return
	}
	made := trimmed(decided)
	made.ID = resp.ContainerId
	c.store.noteContainer(made, false)
	c.queues.after(p.ID, func(ctx context.Context) {
		var left *lifecycle.Delegation
		if len(values) > 0 {
			left = c.wrapper.delegation(c.link.runtimeSeen.Load().kind)
		}
		if err := c.wrapper.decide(made.ID, values); err != nil {
			c.store.change(made.ID, func(k *ctr) { k.undecided = err })
			left.Pending, left.Err = false, err.Error()
		}
		// Others may get its CPUs before it starts, so the agent must know its cgroup by then.
		c.events.notify(ctx, lifecycle.Event{Kind: lifecycle.PostCreateContainer, Pod: p, Container: c.paths.complete(ctx, made, p), Former: decided.ID, Delegated: left})
	})
}

func (c *calls) startContainer(ctx context.Context, req *cri.StartContainerRequest) relay.Verdict {
	k, p := c.lists.find(ctx, req.ContainerId)
	if k == nil {
		return relay.Verdict{}
	}
	if err := c.undecided(k.ID); err != nil {
		return refuse(codes.Internal, "trimtab: "+err.Error()+"; failurePolicy.agent is Fail, so no container starts without a decision. See the agent's log")
	}
	k = c.paths.complete(ctx, k, p)
	end, err := c.events.starting(ctx, k, p)
	if err != nil {
		return refuse(codes.FailedPrecondition, err.Error())
	}
	return relay.Verdict{Done: func(o relay.Outcome) {
		c.queues.after(p.ID, func(ctx context.Context) {
			defer end()
			ev := lifecycle.Event{Kind: lifecycle.PostStartContainer, Pod: p, Container: k}
			if o.Answered && o.Code == codes.OK && !c.withoutDecision(k.ID) {
				ev.Delegated = c.wrapper.result(c.link.runtimeSeen.Load().kind, k.ID, c.events.logAttrs(k.ID))
			}
			c.events.notify(ctx, ev)
		})
	}}
}

// withoutDecision reports whether the decision for the OCI runtime wrapper about a container could not be written.
func (c *calls) withoutDecision(id string) (is bool) {
	c.store.change(id, func(k *ctr) { is = k.undecided != nil })
	return is
}

// undecided returns why the OCI runtime wrapper has no decision about a container, if this must keep the container
// from starting.
func (c *calls) undecided(id string) (why error) {
	c.store.change(id, func(k *ctr) { why = k.undecided })
	if why == nil {
		return nil
	}
	c.log.Error("a container starts without some of the decided values", append(c.events.logAttrs(id), logkey.Err, why)...)
	if !c.fail {
		return nil
	}
	return why
}

func (c *calls) updateContainer(ctx context.Context, req *cri.UpdateContainerResourcesRequest) relay.Verdict {
	k, p := c.lists.find(ctx, req.ContainerId)
	if k == nil {
		return relay.Verdict{}
	}
	asked := criclient.Resources(req.Linux)
	if asked == nil {
		asked = &lifecycle.Resources{}
	}
	ans, err := c.events.handle(ctx, lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: p, Container: k, Requested: asked})
	if err != nil {
		return refuse(codes.FailedPrecondition, err.Error())
	}
	v := relay.Verdict{Done: func(relay.Outcome) {
		c.events.after(lifecycle.Event{Kind: lifecycle.PostUpdateContainer, Pod: p, Container: k})
	}}
	if len(ans.Values) > 0 {
		if req.Linux == nil {
			req.Linux = &cri.LinuxContainerResources{}
		}
		values, left := c.link.splitSupported(runtimes.Request, ans.Values)
		c.events.report(k.Name, append(left, update(req.Linux, values)...))
		c.store.updatePending(k.ID, ans.Values)
		v.Message = c.events.encode(req)
	}
	return v
}
