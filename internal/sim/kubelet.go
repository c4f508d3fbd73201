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

// kubelet simulates a kubelet. It serves the pods of a scenario at /pods, like the read-only port of a kubelet, and
// their grants by the PodResources API. It reports a pod before the runtime creates the pod.
type kubelet struct {
	server *http.Server // serves the pods
	url    string       // the URL of server
	pipes  *pipeNetwork // nil for sockets
	podResourcesServer

	mu           sync.Mutex // guards the fields below
	pods         map[scenario.Ref]kubeletPod
	staticGrants map[scenario.Ref]map[string]scenario.Static // the grants of CPUs, memory nodes and devices, by pod and container
	cdi          map[scenario.Ref]map[string][]string        // the CDI devices of claims, by pod and container
	unreachable  bool                                        // the kubelet answers requests with errors
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

// newKubelet starts a kubelet. The kubelet listens on the loopback interface and on a socket in dir. If m is not nil,
// the kubelet listens in m instead, which connects client and server by pipes in this process.
func newKubelet(dir string, cpus []int, m *pipeNetwork) (*kubelet, error) {
	l, at, err := kubeletListener(m)
	if err != nil {
		return nil, err
	}
	k := &kubelet{pipes: m, url: "http://" + at, pods: map[scenario.Ref]kubeletPod{}, staticGrants: map[scenario.Ref]map[string]scenario.Static{}, cdi: map[scenario.Ref]map[string][]string{}}
	if err := k.listen(dir, cpus, k.grantsByPod, k.claimDevices, m); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	k.server = &http.Server{Handler: http.HandlerFunc(k.serve), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = k.server.Serve(l) }() // ends at close
	return k, nil
}

// kubeletListener returns the listener for HTTP requests, and the host in the URL of these requests.
func kubeletListener(m *pipeNetwork) (net.Listener, string, error) {
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

// serve answers an HTTP request with the list of pods.
func (k *kubelet) serve(w http.ResponseWriter, r *http.Request) {
	k.pipes.pingPlugins()
	k.mu.Lock()
	unreachable := k.unreachable
	list := map[string]any{"kind": "PodList", "apiVersion": "v1", "metadata": map[string]any{}}
	items := []kubeletPod{}
	for _, p := range k.pods {
		items = append(items, p)
	}
	k.mu.Unlock()
	list["items"] = items
	if unreachable || r.URL.Path != "/pods" {
		http.Error(w, "the kubelet serves only /pods, and nothing while the scenario makes it unreachable", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

// addPod adds a pod. The pod's spec, grants and CDI devices are those of the scenario. The kubelet does not report a
// pod without spec.
func (k *kubelet) addPod(pod scenario.Pod, containers []scenario.Container, uid string) {
	ref := scenario.PodRef(pod.Namespace, pod.Name)
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.cdi, ref)
	for i := range containers {
		if len(containers[i].CDI) > 0 {
			if k.cdi[ref] == nil {
				k.cdi[ref] = map[string][]string{}
			}
			k.cdi[ref][containers[i].Name] = containers[i].CDI
		}
	}
	if pod.PodResources != nil {
		k.staticGrants[ref] = maps.Clone(pod.PodResources)
	}
	if len(pod.Spec) == 0 {
		return
	}
	p := kubeletPod{Spec: pod.Spec, Status: map[string]string{"phase": "Pending", "qosClass": pod.QoS}}
	p.Metadata.Name, p.Metadata.Namespace, p.Metadata.UID = pod.Name, pod.Namespace, uid
	p.Metadata.Labels, p.Metadata.Annotations = pod.Labels, pod.Annotations
	k.pods[ref] = p
}

// regrant replaces the kubelet's grants for a container.
func (k *kubelet) regrant(ref scenario.Ref, grants scenario.Static) {
	k.mu.Lock()
	defer k.mu.Unlock()
	byContainer := maps.Clone(k.staticGrants[ref.Pod()])
	if byContainer == nil {
		byContainer = map[string]scenario.Static{}
	}
	byContainer[ref.Container()] = grants
	k.staticGrants[ref.Pod()] = byContainer
}

// grantsByPod returns the kubelet's grants by pod and container. The result ok is false while the kubelet is
// unreachable.
func (k *kubelet) grantsByPod() (given map[scenario.Ref]map[string]scenario.Static, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.staticGrants), !k.unreachable
}

// claimDevices returns the CDI devices of claims, by pod and container.
func (k *kubelet) claimDevices() map[scenario.Ref]map[string][]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.cdi)
}

// annotatePod replaces a pod's labels and annotations, and its spec if the step has one.
func (k *kubelet) annotatePod(a *scenario.Annotate) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, known := k.pods[a.Pod]
	if !known {
		return fmt.Errorf("annotate %s: the kubelet does not know the pod: set pod.spec in the step that runs it", a.Pod)
	}
	p.Metadata.Labels, p.Metadata.Annotations = a.Labels, a.Annotations
	if len(a.Spec) > 0 {
		p.Spec = a.Spec
	}
	k.pods[a.Pod] = p
	return nil
}

func (k *kubelet) removePod(ref scenario.Ref) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pods, ref)
	delete(k.staticGrants, ref)
	delete(k.cdi, ref)
}

func (k *kubelet) setUnreachable(unreachable bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unreachable = unreachable
}
