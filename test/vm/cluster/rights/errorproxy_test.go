package rights

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/kube/condition"
	"github.com/trimtab/trimtab/internal/kube/events"
	"github.com/trimtab/trimtab/internal/kube/podreport"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/vm/controlplane"
)

// TestWritersDuringServerErrors: while the API server answers with any error status, the parts for events, condition
// and annotation report the error and make few requests; afterwards they write.
func TestWritersDuringServerErrors(t *testing.T) {
	p := plane(t)
	proxy := controlplane.NewErrorProxy(t, p, token(t, p, "Pod", "agent-n1"))
	uid := string(get(t, p, "Pod", "default", "app-n1").GetUID())
	a := startAgentAt(t, p, proxy.Kubeconfig)
	pod := &lifecycle.Pod{
		ID: "p", Name: "app-n1", UID: uid, Namespace: "default", CgroupParent: "/kubepods/podu", Annotations: map[string]string{intent.KoordResourceStatus: `{"cpuset":"0-3"}`},
		Resources: &lifecycle.Resources{CPU: lifecycle.CPU{Quota: lifecycle.Some(int64(200000))}},
	}
	a.create(t, pod, "first")
	a.condition("True", condition.Ready)
	for i, code := range []int{http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable} {
		asked := proxy.Requests.Load()
		proxy.Begin(code)
		text := fmt.Sprintf("through %d", code)
		a.state.Store(&condition.State{Status: "True", Reason: condition.ConfigurationRefused, Message: text})
		a.to.Warn(events.About{Kind: "Pod", Namespace: "default", Name: "app-n1", UID: uid}, events.HookFailed, text)
		a.create(t, pod, fmt.Sprintf("during-%d", i))
		p.Wait("each part has failed", func(context.Context) error {
			for _, part := range a.parts {
				if row := part.Row(); row.Error == "" {
					return fmt.Errorf("%+v", row)
				}
			}
			return nil
		})
		if n := proxy.Requests.Load() - asked; n > 100 {
			t.Errorf("%d: %d requests: the agent does not back off", code, n)
		}
		proxy.End()
		a.create(t, pod, fmt.Sprintf("after-%d", i)) // annotations are written again at the next change, or after a minute
		p.Wait("all is written: "+text, func(ctx context.Context) error {
			if c := conditionOf(ctx, p); c == nil || c["message"] != text {
				return fmt.Errorf("the condition is %v", c)
			}
			all, err := about(ctx, p, uid)
			if err != nil {
				return err
			}
			if e := all[string(events.HookFailed)]; e == nil || e.Object["message"] != text {
				return fmt.Errorf("the event is %v", e)
			}
			if got := get(t, p, "Pod", "default", "app-n1").GetAnnotations()[podreport.PlacementAnnotation]; !strings.Contains(got, fmt.Sprintf("during-%d", i)) {
				return fmt.Errorf("the annotation is %q", got)
			}
			return nil
		})
	}
}
