package rights

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/kube/namespaces"
	"github.com/trimtab/trimtab/test/vm/controlplane"
)

// TestNamespaces: with its own token the agent reads labels of namespaces and their changes. It keeps them over a
// restart while the API server is stopped.
func TestNamespaces(t *testing.T) {
	p := plane(t)
	client, err := kube.Connect(kube.Options{Kubeconfig: p.Kubeconfig("agent", token(t, p, "Pod", "agent-n1")), Node: "n1", Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var kept []byte
	saved := func() []byte {
		mu.Lock()
		defer mu.Unlock()
		return kept
	}
	s := &namespaces.Service{
		Store: &namespaces.Store{}, Client: client, NeedsLabels: func() bool { return true }, Apply: func() error { return nil },
		Save: func(data []byte) error {
			mu.Lock()
			defer mu.Unlock()
			kept = data
			return nil
		},
	}
	if s.Row().Error == "" {
		t.Error("the status does not report that no namespace was read")
	}
	stop := run(t, s.Run)
	label := func(value string) {
		body := fmt.Sprintf(`{"metadata":{"labels":{"team":%q}}}`, value)
		if _, err := of(p.Dynamic(controlplane.Admin), "Namespace", "").Patch(t.Context(), "default", types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		p.Wait("the label "+value, func(context.Context) error {
			again := &namespaces.Store{}
			again.Load(saved())
			if got := again.Labels()["default"]["team"]; got != value || s.Store.Labels()["default"]["team"] != value {
				return errors.New("kept " + got)
			}
			return nil
		})
	}
	label("db")
	label("web")
	if row := s.Row(); row.Error != "" {
		t.Errorf("row %+v", row)
	}
	stop()
	p.StopServer()
	next := &namespaces.Service{Store: &namespaces.Store{}, Client: client, NeedsLabels: s.NeedsLabels, Apply: s.Apply}
	next.Store.Load(saved())
	run(t, next.Run)
	if row := next.Row(); next.Store.Labels()["default"]["team"] != "web" || row.Error == "" {
		t.Errorf("without the API server %v, %+v", next.Store.Labels(), row)
	}
}
