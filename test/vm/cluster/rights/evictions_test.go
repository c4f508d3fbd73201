package rights

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/kube/events"
	"github.com/trimtab/trimtab/internal/kube/podreport"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/test/vm/controlplane"
)

// mayEvict is the role that the chart makes with rbac.eviction.
const mayEvict = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: may-evict}
rules: [{apiGroups: [""], resources: [pods/eviction], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: may-evict}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: may-evict}
subjects: [{kind: ServiceAccount, name: ` + release + `, namespace: ` + namespace + `}]
`

// TestEvictions: a pod that the topology manager refused three times is evicted, if the agent may do that; a later pod of
// the same name is not, and neither is a pod that something else refuses.
func TestEvictions(t *testing.T) {
	p := plane(t)
	client, err := kube.Connect(kube.Options{Kubeconfig: p.Kubeconfig("agent", token(t, p, "Pod", "agent-n1")), Node: "n1", Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	n, to := node(t), events.NewRecorder(client)
	e := podreport.NewEvictions(n, client, to, func() int { return 3 })
	e.Debounce = time.Millisecond
	run(t, func(ctx context.Context) { kube.Run(ctx, to, e) })
	uid := string(get(t, p, "Pod", "default", "app-n1").GetUID())
	refuse := func(uid string, unaligned bool) {
		n.Journal().Add(api.Event{
			Time: time.Now(), Kind: "CreateContainer", Pod: "default/app-n1", PodUID: uid, Container: "one", Rejected: "no NUMA node has 8 CPUs", Unaligned: unaligned,
		})
	}
	failed := func(why string) error {
		if row := e.Row(); !strings.Contains(row.Error, why) || row.Written > 0 {
			return fmt.Errorf("the row is %+v", row)
		}
		return nil
	}
	exists := func(ctx context.Context) error {
		pod, err := of(p.Dynamic(controlplane.Admin), "Pod", "default").Get(ctx, "app-n1", metav1.GetOptions{})
		if err == nil && pod.GetDeletionTimestamp() != nil {
			return errors.New("it is being deleted")
		}
		return err
	}

	for range 4 {
		refuse(uid, false) // by a rule
	}
	refuse(uid, true)
	refuse(uid, true)
	for range 3 {
		refuse("of-an-earlier-pod", true)
	}
	p.Wait("the refusal without the right", func(context.Context) error { return failed("forbidden") })
	create(t, p, mayEvict)
	p.Wait("the refusal of an eviction by UID", func(context.Context) error { refuse("of-an-earlier-pod", true); return failed("recondition") })
	if err := exists(t.Context()); err != nil {
		t.Fatalf("after two refusals: %v", err)
	}
	refuse(uid, true)
	p.Wait("the eviction", func(ctx context.Context) error {
		if err := exists(ctx); err == nil {
			return errors.New("the pod is still there")
		} else if !kerrors.IsNotFound(err) && !strings.Contains(err.Error(), "deleted") {
			return err
		}
		return nil
	})
	p.Wait("the events", func(ctx context.Context) error {
		all, err := about(ctx, p, uid)
		if err == nil && all["PodEvicted"] == nil {
			err = fmt.Errorf("there are %v", all)
		}
		return err
	})
}
