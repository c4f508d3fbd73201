package cri

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// beforePod is a handler that wants to be asked before a sandbox is made.
type beforePod interface {
	BeforePod(ctx context.Context, from conductor.Carrier, pod *lifecycle.Pod) (lifecycle.Outside, error)
}

// beforePod lays what is wanted of a pod from outside into the request for its
// sandbox. Without any it returns no message: the original goes on. The error is
// a no.
func (a *Attachment) beforePod(ctx context.Context, req *cri.RunPodSandboxRequest) ([]byte, error) {
	h, ok := a.o.Handler.(beforePod)
	if !ok {
		return nil, nil
	}
	want, err := h.BeforePod(ctx, a, podIn(req.Config, "", req.RuntimeHandler))
	if err != nil || len(want.Labels)+len(want.Annotations) == 0 {
		return nil, err
	}
	for _, into := range []struct {
		have *map[string]string
		want map[string]string
	}{{&req.Config.Labels, want.Labels}, {&req.Config.Annotations, want.Annotations}} {
		for k, v := range into.want {
			if *into.have == nil {
				*into.have = map[string]string{}
			}
			(*into.have)[k] = v
		}
	}
	return a.encode(req), nil
}
