package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// kubelet serves the pods of a scenario at /pods, like the kubelet's read-only port, and by its PodResources API. It
// has a pod before the runtime does.
type kubelet struct {
	server *http.Server
	url    string
	memory *memory // nil for sockets
	granter

	mu    sync.Mutex // guards the fields below
	pods  map[scenario.Ref]kubeletPod
	given map[scenario.Ref]map[string]scenario.Static
	away  bool
}

// kubeletPod has the fields of a v1.Pod that a scenario can set.
type kubeletPod struct {
	Metadata struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		UID         string            `json:"uid"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Spec   json.RawMessage   `json:"spec"`
	Status map[string]string `json:"status"`
}

// newKubelet listens on the loopback and on a socket in a directory, or at addresses in memory.
func newKubelet(dir string, cpus []int, m *memory) (*kubelet, error) {
	l, at, err := kubeletListener(m)
	if err != nil {
		return nil, err
	}
	k := &kubelet{memory: m, url: "http://" + at, pods: map[scenario.Ref]kubeletPod{}, given: map[scenario.Ref]map[string]scenario.Static{}}
	if err := k.listen(dir, cpus, k.grants, m); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	k.server = &http.Server{Handler: http.HandlerFunc(k.serve), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = k.server.Serve(l) }() // ends at close
	return k, nil
}

func kubeletListener(m *memory) (net.Listener, string, error) {
	if m != nil {
		l, err := m.Listen("kubelet:80")
		return l, "kubelet", err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	return l, l.Addr().String(), nil
}

func (k *kubelet) close() error {
	k.stop()
	if err := k.server.Close(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (k *kubelet) serve(w http.ResponseWriter, r *http.Request) {
	k.memory.ping()
	k.mu.Lock()
	away := k.away
	list := map[string]any{"kind": "PodList", "apiVersion": "v1", "metadata": map[string]any{}}
	items := []kubeletPod{}
	for _, p := range k.pods {
		items = append(items, p)
	}
	k.mu.Unlock()
	list["items"] = items
	if away || r.URL.Path != "/pods" {
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

// put adds a pod, if the scenario has what the kubelet reports of it.
func (k *kubelet) put(pod scenario.Pod, uid string) {
	ref := scenario.PodRef(pod.Namespace, pod.Name)
	k.mu.Lock()
	defer k.mu.Unlock()
	if pod.PodResources != nil {
		k.given[ref] = maps.Clone(pod.PodResources)
	}
	if len(pod.Spec) == 0 {
		return
	}
	p := kubeletPod{Spec: pod.Spec, Status: map[string]string{"phase": "Pending", "qosClass": pod.QoS}}
	p.Metadata.Name, p.Metadata.Namespace, p.Metadata.UID = pod.Name, pod.Namespace, uid
	p.Metadata.Labels, p.Metadata.Annotations = pod.Labels, pod.Annotations
	k.pods[ref] = p
}

// regrant changes what the kubelet granted a container.
func (k *kubelet) regrant(ref scenario.Ref, now scenario.Static) {
	k.mu.Lock()
	defer k.mu.Unlock()
	of := maps.Clone(k.given[ref.Pod()])
	if of == nil {
		of = map[string]scenario.Static{}
	}
	of[ref.Container()] = now
	k.given[ref.Pod()] = of
}

// grants returns what the kubelet granted, by pod and container; ok is false while the kubelet is away.
func (k *kubelet) grants() (given map[scenario.Ref]map[string]scenario.Static, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.given), !k.away
}

// annotate changes a pod's labels and annotations, and its spec.
func (k *kubelet) annotate(a *scenario.Annotate) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, known := k.pods[a.Pod]
	if !known {
		return fmt.Errorf("annotate %s: the kubelet does not know the pod; give it a spec", a.Pod)
	}
	p.Metadata.Labels, p.Metadata.Annotations = a.Labels, a.Annotations
	if len(a.Spec) > 0 {
		p.Spec = a.Spec
	}
	k.pods[a.Pod] = p
	return nil
}

func (k *kubelet) drop(ref scenario.Ref) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pods, ref)
	delete(k.given, ref)
}

func (k *kubelet) setAway(away bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.away = away
}
