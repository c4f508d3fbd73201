package cri

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/carry"
	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/attach/relay"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// criServices are the gRPC services with calls that the relay holds for a decision. v1alpha2 (Kubernetes before 1.26)
// has the same fields with the same numbers as v1, so the types of v1 can decode both.
var criServices = []string{"/runtime.v1.RuntimeService/", "/runtime.v1alpha2.RuntimeService/"}

// callHandler decides about the calls that the relay holds.
type callHandler struct {
	*sharedState

	failClosed bool // refuse to create or start a container without a decision
}

// handledCall says how the attachment handles one method of the calls that the relay holds.
type handledCall struct {
	// decideFunc decides what the relay does with the call: it forwards the call, changed or unchanged, or refuses it. The
	// parameter msg is the encoded request.
	decideFunc func(c *callHandler, ctx context.Context, msg []byte) relay.Verdict
	// ends means that the call ends a pod or container. The agent decides nothing for such a call, and handles the
	// event only after the runtime has confirmed the call.
	ends bool
}

// handledCalls has the calls that the attachment decodes, by method. The relay forwards all other calls unchanged.
var handledCalls = map[string]handledCall{
	"RunPodSandbox":             {decideFunc: decode((*callHandler).runPod)},
	"UpdatePodSandboxResources": {decideFunc: decode((*callHandler).updatePod)},
	"StopPodSandbox":            {ends: true, decideFunc: decode(endPod[*cri.StopPodSandboxRequest](lifecycle.StopPodSandbox))},
	"RemovePodSandbox":          {ends: true, decideFunc: decode(endPod[*cri.RemovePodSandboxRequest](lifecycle.RemovePodSandbox))},
	"CreateContainer":           {decideFunc: (*callHandler).createContainer},
	"StartContainer":            {decideFunc: decode((*callHandler).startContainer)},
	"UpdateContainerResources":  {decideFunc: decode((*callHandler).updateContainer)},
	"StopContainer":             {ends: true, decideFunc: decode(endContainer[*cri.StopContainerRequest](lifecycle.StopContainer))},
	"RemoveContainer":           {ends: true, decideFunc: decode(endContainer[*cri.RemoveContainerRequest](lifecycle.RemoveContainer))},
}

// decode returns a function for handledCall.decideFunc. It decodes a request and passes it to call. A malformed request
// is forwarded unchanged, because the runtime itself refuses it.
func decode[M any, P interface {
	*M
	proto.Message
}](call func(c *callHandler, ctx context.Context, req P) relay.Verdict) func(*callHandler, context.Context, []byte) relay.Verdict {
	return func(c *callHandler, ctx context.Context, msg []byte) relay.Verdict {
		req := P(new(M))
		if proto.Unmarshal(msg, req) != nil {
			return relay.Verdict{}
		}
		return call(c, ctx, req)
	}
}

// handlingFor decides whether the relay holds a call for a decision. Until the agent knows the running containers, the
// relay holds no call. But if FailClosed is set and this agent is not on standby, handlingFor refuses CreateContainer.
func (c *callHandler) handlingFor(path string) relay.Handling {
	for _, service := range criServices {
		method, ours := strings.CutPrefix(path, service)
		if !ours {
			continue
		}
		call, ok := handledCalls[method]
		if !ok {
			return relay.Handling{}
		}
		switch {
		case c.link.containersKnown.Load():
			return relay.Handling{RunsInline: call.ends, Hook: func(ctx context.Context, msg []byte) relay.Verdict {
				return c.decide(ctx, method, call, msg)
			}}
		case c.failClosed && !c.link.standby.Load() && method == "CreateContainer":
			return relay.Handling{RunsInline: true, Hook: func(context.Context, []byte) relay.Verdict {
				return refuse(codes.Unavailable, "trimtab: the agent does not know the running containers yet; failurePolicy.agent is Fail, so no container starts without a decision. Try again, or set failurePolicy.agent to Ignore")
			}}
		}
		return relay.Handling{}
	}
	return relay.Handling{}
}

// refuse returns a verdict that answers a call with an error.
func refuse(code codes.Code, text string) relay.Verdict {
	return relay.Verdict{Refuse: &relay.Status{Code: code, Text: text}}
}

// decide returns the verdict for one call. If the agent panics, the relay forwards the call unchanged. But if the call
// is CreateContainer and FailClosed is set, decide refuses the call.
func (c *callHandler) decide(ctx context.Context, method string, call handledCall, msg []byte) (v relay.Verdict) {
	if !connect.RecoverPanic(c.log, method, func() { v = call.decideFunc(c, ctx, msg) }) {
		v = relay.Verdict{}
		if c.failClosed && method == "CreateContainer" {
			v = refuse(codes.Internal, "trimtab: the agent panicked while it decided about the container; failurePolicy.agent is Fail, so no container starts without a decision. See the agent's log")
		}
	}
	return v
}

// onConfirmed returns a verdict that forwards the call unchanged, and runs f when the runtime has confirmed the call.
func onConfirmed(f func()) relay.Verdict {
	return relay.Verdict{OnOutcome: func(o relay.Outcome) {
		if o.Answered && o.Code == codes.OK {
			f()
		}
	}}
}

// decodeAnswer decodes the runtime's answer. It returns false if the call failed or the answer is malformed.
func decodeAnswer(o relay.Outcome, into proto.Message) bool {
	return o.Answered && o.Code == codes.OK && proto.Unmarshal(o.Message, into) == nil
}

// runPod handles RunPodSandbox. Hook servers may reject the pod, or add labels and annotations. The handler gets the
// event when the runtime has created the sandbox.
func (c *callHandler) runPod(ctx context.Context, req *cri.RunPodSandboxRequest) relay.Verdict {
	if req.Config == nil {
		return relay.Verdict{}
	}
	v := relay.Verdict{OnOutcome: func(o relay.Outcome) {
		resp := &cri.RunPodSandboxResponse{}
		if !decodeAnswer(o, resp) || resp.PodSandboxId == "" {
			return
		}
		p := criclient.PodOfConfig(req.Config, resp.PodSandboxId, req.RuntimeHandler)
		c.store.notePod(p)
		c.events.queueAfterOthers(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p})
	}}
	want, err := c.events.beforePod(ctx, criclient.PodOfConfig(req.Config, "", req.RuntimeHandler))
	if err != nil {
		return refuse(codes.FailedPrecondition, err.Error())
	}
	if len(want.Labels)+len(want.Annotations) > 0 {
		req.Config.Labels, req.Config.Annotations = carry.MergePairs(req.Config.Labels, want.Labels), carry.MergePairs(req.Config.Annotations, want.Annotations)
		v.Message = c.events.encode(req)
	}
	return v
}

// updatePod handles UpdatePodSandboxResources. When the runtime has confirmed the call, it stores the new resources of
// the pod and notifies the handler.
func (c *callHandler) updatePod(ctx context.Context, req *cri.UpdatePodSandboxResourcesRequest) relay.Verdict {
	c.queues.awaitQueue(ctx, req.PodSandboxId)
	return onConfirmed(func() {
		c.queues.enqueue(req.PodSandboxId, func(ctx context.Context) {
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

// endPod returns a function that handles a call that ends a pod.
func endPod[R interface{ GetPodSandboxId() string }](kind lifecycle.Kind) func(*callHandler, context.Context, R) relay.Verdict {
	return func(c *callHandler, _ context.Context, req R) relay.Verdict {
		return onConfirmed(func() { c.events.endPod(req.GetPodSandboxId(), kind) })
	}
}

// endContainer returns a function that handles a call that ends a container.
func endContainer[R interface{ GetContainerId() string }](kind lifecycle.Kind) func(*callHandler, context.Context, R) relay.Verdict {
	return func(c *callHandler, _ context.Context, req R) relay.Verdict {
		k, p := c.store.container(req.GetContainerId())
		if k == nil {
			return relay.Verdict{}
		}
		return onConfirmed(func() { c.events.endContainer(k, p, kind) })
	}
}

// podOf returns the pod of a container that is to be created. It takes the pod from the request in two cases: the relay
// forwarded RunPodSandbox without a decision, so the store lacks the pod; or the runtime could not describe the pod.
func (c *callHandler) podOf(ctx context.Context, req createRequest) *lifecycle.Pod {
	c.queues.awaitQueue(ctx, req.podID)
	known := c.store.pod(req.podID)
	if known != nil && known.Undescribed == "" {
		return known
	}
	p := req.describedPod()
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

// createContainer handles CreateContainer. It puts the decided values into the request.
func (c *callHandler) createContainer(ctx context.Context, msg []byte) relay.Verdict {
	req, ok := parseCreateRequest(msg)
	if !ok {
		return relay.Verdict{}
	}
	p, asked := c.podOf(ctx, req), req.container
	asked.ID = c.store.creationID()
	ans, err := c.events.handle(ctx, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: p, Container: asked})
	if err != nil {
		return refuse(codes.FailedPrecondition, err.Error())
	}
	values, rest := c.wrapper.splitValues(c.link.lastRuntime.Load().kind, ans.Values)
	v := relay.Verdict{OnOutcome: func(o relay.Outcome) { c.noteCreated(o, p, asked, values) }}
	if len(rest) > 0 {
		var unsupported []lifecycle.Value
		v.Message, v.Appended, unsupported = c.withValues(req, rest)
		c.events.logUnsupported(asked.Name, unsupported)
	}
	return v
}

// noteCreated stores a created container under the id that the runtime has given it, and writes values for the OCI
// runtime wrapper. The wrapper reads these values when the container starts. A StartContainer call waits until all
// functions in the queue of its pod have ended, so it also waits for this write. If the creation failed or had no
// answer, noteCreated reports the container as removed. If the runtime has created the container nevertheless, the next
// comparison of lists stores the container.
func (c *callHandler) noteCreated(o relay.Outcome, p *lifecycle.Pod, decided *lifecycle.Container, values []lifecycle.Value) {
	resp := &cri.CreateContainerResponse{}
	if !decodeAnswer(o, resp) || resp.ContainerId == "" {
		c.events.queueAfterOthers(lifecycle.Event{Kind: lifecycle.RemoveContainer, Pod: p, Container: decided})
		return
	}
	made := compactCopy(decided)
	made.ID = resp.ContainerId
	c.store.noteContainer(made, false)
	c.queues.enqueue(p.ID, func(ctx context.Context) {
		var delegation *lifecycle.Delegation
		if len(values) > 0 {
			delegation = c.wrapper.delegation(c.link.lastRuntime.Load().kind)
		}
		if err := c.wrapper.writeDecision(made.ID, values); err != nil {
			c.store.change(made.ID, func(k *ctr) { k.decisionErr = err })
			delegation.Pending, delegation.Err = false, err.Error()
		}
		// Before the new container starts, the agent can take CPUs from it for other containers. So the agent must
		// already know the path of the new container's cgroup.
		c.events.notify(ctx, lifecycle.Event{Kind: lifecycle.PostCreateContainer, Pod: p, Container: c.paths.withCgroupsPath(ctx, made, p), Former: decided.ID, Delegated: delegation})
	})
}

// startContainer handles StartContainer. If the agent has decided values for the container since its creation, the
// runtime gets these values before the call.
func (c *callHandler) startContainer(ctx context.Context, req *cri.StartContainerRequest) relay.Verdict {
	k, p := c.lists.find(ctx, req.ContainerId)
	if k == nil {
		return relay.Verdict{}
	}
	if err := c.whyNoDecision(k.ID); err != nil {
		c.log.Error("a container starts without some of the decided values", append(c.events.logAttrs(k.ID), logkey.Err, err)...)
		if c.failClosed {
			return refuse(codes.Internal, "trimtab: "+err.Error()+"; failurePolicy.agent is Fail, so no container starts without a decision. See the agent's log")
		}
	}
	k = c.paths.withCgroupsPath(ctx, k, p)
	end, err := c.events.handleStart(ctx, k, p)
	if err != nil {
		return refuse(codes.FailedPrecondition, err.Error())
	}
	return relay.Verdict{OnOutcome: func(o relay.Outcome) {
		c.queues.enqueue(p.ID, func(ctx context.Context) {
			defer end()
			ev := lifecycle.Event{Kind: lifecycle.PostStartContainer, Pod: p, Container: k}
			if o.Answered && o.Code == codes.OK && c.whyNoDecision(k.ID) == nil {
				ev.Delegated = c.wrapper.result(c.link.lastRuntime.Load().kind, k.ID, c.events.logAttrs(k.ID))
			}
			c.events.notify(ctx, ev)
		})
	}}
}

// whyNoDecision returns the error that the agent got when it wrote the decision about a container for the OCI runtime
// wrapper. It returns nil if there was no error.
func (c *callHandler) whyNoDecision(id string) (why error) {
	c.store.change(id, func(k *ctr) { why = k.decisionErr })
	return why
}

// updateContainer handles UpdateContainerResources. It puts the decided values into the request.
func (c *callHandler) updateContainer(ctx context.Context, req *cri.UpdateContainerResourcesRequest) relay.Verdict {
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
	v := relay.Verdict{OnOutcome: func(relay.Outcome) {
		c.events.queueAfterOthers(lifecycle.Event{Kind: lifecycle.PostUpdateContainer, Pod: p, Container: k})
	}}
	if len(ans.Values) > 0 {
		if req.Linux == nil {
			req.Linux = &cri.LinuxContainerResources{}
		}
		values, unsupported := c.link.splitSupported(runtimes.KubeletUpdate, ans.Values)
		c.events.logUnsupported(k.Name, append(unsupported, putInResources(req.Linux, values)...))
		c.store.updatePending(k.ID, ans.Values)
		v.Message = c.events.encode(req)
	}
	return v
}
