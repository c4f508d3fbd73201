package cri

import (
	"context"
	"errors"
	"log/slog"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// sharedState has what three parts of the attachment use together: the handling of the kubelet's calls, the hook calls
// of a runtime proxy, and the comparison of lists. Each field protects its own data against concurrent use.
type sharedState struct {
	log         *slog.Logger
	client      *criclient.Client // set by Run
	link        *link             // the state of the connection to the runtime
	store       *store            // the pods and containers that the attachment knows
	queues      *callQueues       // runs functions after the runtime's answers to calls
	retries     *retries          // decides when to ask the runtime again
	paths       *pathLearner      // learns the paths of containers' cgroups
	events      *events           // passes events to the handler
	lists       *listSynchroniser // updates the store from the runtime's lists
	hookService *hookService      // nil unless the attachment serves a runtime proxy
	wrapper     wrapper           // writes decisions for the OCI runtime wrapper
}

// beforePodHandler is a handler that can decide about a pod before the runtime creates the sandbox.
type beforePodHandler interface {
	// BeforePod returns the labels and annotations that hook servers add to the pod. The error is a *conductor.Rejection.
	BeforePod(ctx context.Context, from conductor.Carrier, pod *lifecycle.Pod) (lifecycle.HookServerAnswer, error)
}

// events passes events to the handler, and sends the handler's values for existing containers to the runtime.
type events struct {
	*sharedState

	handler conductor.Handler
	carrier conductor.Carrier // the attachment, as the source of the events
}

// beforePod asks hook servers for changes of a pod before its sandbox exists. An error means that they reject the pod.
func (e *events) beforePod(ctx context.Context, p *lifecycle.Pod) (lifecycle.HookServerAnswer, error) {
	if h, ok := e.handler.(beforePodHandler); ok {
		return h.BeforePod(ctx, e.carrier, p)
	}
	return lifecycle.HookServerAnswer{}, nil
}

// handle passes an event to the handler. If the handler rejects the event, the error is a *conductor.Rejection. After
// any other error of the handler, handle logs that error and returns an answer that changes nothing, without an error.
func (e *events) handle(ctx context.Context, ev lifecycle.Event) (conductor.Answer, error) {
	ans, err := e.handler.Handle(ctx, e.carrier, ev)
	if rejected, refused := errors.AsType[*conductor.Rejection](err); refused {
		return ans, rejected
	}
	if err != nil {
		e.log.Error("the agent could not decide about an event; the answer to the runtime changes nothing", logkey.Op, ans.Op, logkey.Event, ev.Kind.String(), logkey.Err, err)
		return conductor.Answer{}, nil
	}
	e.updateOthers(ans.Others)
	return ans, nil
}

// notify passes an event to the handler. The event has already happened, so no policy can refuse it any more.
func (e *events) notify(ctx context.Context, ev lifecycle.Event) {
	if _, err := e.handle(ctx, ev); err != nil {
		e.log.Warn("a policy refused an event that has already happened", logkey.Event, ev.Kind.String(), logkey.Err, err)
	}
}

// queueAfterOthers passes an event to the handler, after all functions that are already queued for the event's pod.
func (e *events) queueAfterOthers(ev lifecycle.Event) {
	e.queues.enqueue(ev.Pod.ID, func(ctx context.Context) { e.notify(ctx, ev) })
}

// endPod passes a pod's end to the handler, after all functions that are already queued for the pod. It then forgets
// the pod and its containers, if the pod was removed.
func (e *events) endPod(id string, kind lifecycle.Kind) {
	e.queues.enqueue(id, func(ctx context.Context) {
		p := e.store.pod(id)
		if p == nil {
			return
		}
		e.notify(ctx, lifecycle.Event{Kind: kind, Pod: p})
		if kind != lifecycle.RemovePodSandbox {
			return
		}
		gone := e.store.dropPod(id)
		e.retries.endPause(append(gone, id)...)
		e.wrapper.removeDecisions(gone...)
		if e.hookService != nil {
			e.hookService.forgetSandbox(id)
		}
	})
}

// endContainer passes the stop or the removal of a container to the handler, after all functions that are already
// queued for its pod. Of several stops of a container it passes only the first.
func (e *events) endContainer(c *lifecycle.Container, p *lifecycle.Pod, kind lifecycle.Kind) {
	e.queues.enqueue(p.ID, func(ctx context.Context) {
		again := true
		e.store.change(c.ID, func(k *ctr) { again, k.ended = k.ended, true })
		if kind == lifecycle.RemoveContainer {
			e.store.dropContainer(c.ID)
			e.retries.endPause(c.ID)
			e.wrapper.removeDecisions(c.ID)
		} else if again {
			return
		}
		e.notify(ctx, lifecycle.Event{Kind: kind, Pod: p, Container: c})
	})
}

// updateOthers sends values of existing containers to the runtime. For a container that starts or runs, it sends them
// at once. For a container that was only created, it stores them until the container starts.
func (e *events) updateOthers(all []conductor.Settings) {
	for _, s := range all {
		late := false
		e.store.change(s.Container, func(c *ctr) {
			if late = c.started; !late {
				c.pending = mergeValues(c.pending, s.Values)
			}
		})
		if late {
			e.queues.work.Go(func() {
				if err := e.send(e.queues.ctx, s.Container, s.Values); err != nil {
					e.log.Warn("the runtime refused to update the resources that it stores for a container", append(e.logAttrs(s.Container), logkey.Err, err)...)
				}
			})
		}
	}
}

// handleStart handles a StartContainer call. It sends the container's pending values to the runtime. If the container
// owns CPUs, handleStart waits until containers whose start began earlier have started. The caller must call end when
// the container has started. The error is a rejection.
func (e *events) handleStart(ctx context.Context, c *lifecycle.Container, p *lifecycle.Pod) (end func(), err error) {
	serial, started := e.queues.beginStart()
	defer func() {
		if end == nil { // this function returns an error, so the caller gets no function to call
			started()
		}
	}()
	ans, err := e.handle(ctx, lifecycle.Event{Kind: lifecycle.StartContainer, Pod: p, Container: c})
	if err != nil {
		return nil, err
	}
	if err := e.sendPending(ctx, c.ID); err != nil {
		e.log.Warn("the runtime did not accept an update before the start of a container; the container starts with the values of its creation, and the agent writes the new values to the cgroup at once", append(e.logAttrs(c.ID), logkey.Err, err)...)
	}
	if ans.OwnsCPUs {
		e.queues.awaitStarts(ctx, serial)
	}
	return started, nil
}

// sendPending notes that a container starts, and sends its pending values to the runtime.
func (e *events) sendPending(ctx context.Context, id string) error {
	var pending []lifecycle.Value
	e.store.change(id, func(c *ctr) { pending, c.pending, c.started = c.pending, nil, true })
	if len(pending) == 0 {
		return nil
	}
	return e.send(ctx, id, pending)
}

// send updates a container with an UpdateContainerResources call of the agent itself. If the runtime supports none of
// the values, send makes no call.
func (e *events) send(ctx context.Context, id string, values []lifecycle.Value) error {
	r := &cri.LinuxContainerResources{}
	values, unsupported := e.link.splitSupported(runtimes.AgentUpdate, values)
	e.logUnsupported(id, unsupported)
	if unsupported := putInResources(r, values); len(unsupported) == len(values) {
		return nil
	}
	return e.client.Update(ctx, id, r)
}

// encode encodes a changed message, including the fields that this package does not know. It returns nil after an
// error.
func (e *events) encode(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		e.log.Error("the agent cannot encode a changed request, so it forwards the original request", logkey.Err, err)
		return nil
	}
	return b
}

// logUnsupported logs values that the handler returned although Capabilities excludes them.
func (e *events) logUnsupported(id string, unsupported []lifecycle.Value) {
	for _, v := range unsupported {
		e.log.Warn("the agent cannot send a decided value to the runtime with this CRI call", append(e.logAttrs(id), logkey.Field, v.Field.String(), logkey.Value, v.String())...)
	}
}

// logAttrs returns the log attributes that name a container, and its pod if the pod is known.
func (e *events) logAttrs(id string) []any {
	c, p := e.store.container(id)
	if c == nil || p == nil {
		return []any{logkey.Container, id}
	}
	return []any{logkey.Container, c.Name, logkey.Owner, id, logkey.Pod, p.Name, logkey.Namespace, p.Namespace}
}
