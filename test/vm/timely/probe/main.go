// Command probe creates pods at the API server, bound to its node, and prints how long after the server's
// answer each source first had them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/podspec"
	"github.com/trimtab/trimtab/internal/sleep"
)

// podTimes has the times at which sources first had pods, by UID and source.
type podTimes struct {
	mu    sync.Mutex
	at    map[string]map[string]time.Time
	now   map[string]map[string]bool // what each polled source has now
	wakes chan struct{}
}

func (k *podTimes) note(source, uid string) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at[uid] == nil {
		k.at[uid] = map[string]time.Time{}
	}
	if _, before := k.at[uid][source]; !before {
		k.at[uid][source] = now
	}
	select {
	case k.wakes <- struct{}{}:
	default:
	}
}

// RunPodSandbox notes a pod when the runtime sends NRI's event.
func (k *podTimes) RunPodSandbox(_ context.Context, p *api.PodSandbox) error { //nolint:unparam // the signature is NRI's
	k.note("NRI", p.GetUid())
	return nil
}

// noteUpdate notes an update of a source.
func (k *podTimes) noteUpdate(source string) func(podspec.Update) {
	return func(u podspec.Update) {
		for uid := range u.All {
			k.note(source, uid)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if u.Full || k.now[source] == nil {
			k.now[source] = map[string]bool{}
		}
		for uid := range u.All {
			k.now[source][uid] = true
		}
		delete(k.now[source], u.EndedUID)
	}
}

// sources are in the order of the table.
var sources = []string{"API server", "Pods API", "/pods", "NRI"}

// allSourcesHave reports whether every source has had a pod.
func (k *podTimes) allSourcesHave(uid string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.at[uid]) == len(sources)
}

// isGone reports whether the kubelet has dropped a pod.
func (k *podTimes) isGone(uid string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.now["/pods"][uid] && !k.now["API server"][uid]
}

// until waits for a condition on the sources.
func (k *podTimes) until(ctx context.Context, what string, done func() bool) error {
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			k.mu.Lock()
			defer k.mu.Unlock()
			return fmt.Errorf("%s: %w; %v", what, ctx.Err(), k.at)
		case <-k.wakes:
		case <-again.C:
		}
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	if len(os.Args) != 6 {
		return errors.New("usage: probe KUBECONFIG NODE IMAGE PODS-SOCKET HOW-MANY")
	}
	file, node, image, socket := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	many, err := strconv.Atoi(os.Args[5])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(5+many)*time.Minute)
	defer cancel()
	c, err := kube.Connect(kube.Options{Kubeconfig: file, Node: node, Version: "timely"})
	if err != nil {
		return err
	}
	k := &podTimes{at: map[string]map[string]time.Time{}, now: map[string]map[string]bool{}, wakes: make(chan struct{}, 1)}
	plugin, err := stub.New(k, stub.WithPluginName("timely"), stub.WithPluginIdx("50"))
	if err != nil {
		return err
	}
	if err := plugin.Start(ctx); err != nil {
		return err
	}
	defer plugin.Stop()
	watchSource(ctx, k, "API server", podspec.NewAPIServer(podspec.APIServerOptions{URL: c.Server, Client: c.HTTP, Node: node}))
	watchSource(ctx, k, "Pods API", podspec.NewPodsAPI(socket))
	go poll(ctx, k)
	var out []map[string]float64
	for i := range many {
		times, err := measurePod(ctx, k, c, image, fmt.Sprintf("timely-%d", i))
		if err != nil {
			return err
		}
		out = append(out, times)
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// watchSource watches a source in the background until ctx ends.
func watchSource(ctx context.Context, k *podTimes, source string, r podspec.SpecSource) {
	go func() {
		for ctx.Err() == nil {
			if err := r.Watch(ctx, k.noteUpdate(source)); err != nil && ctx.Err() == nil {
				log.Printf("%s: %v", source, err)
				sleep.For(ctx, time.Second)
			}
		}
	}()
}

// poll polls the kubelet's /pods.
func poll(ctx context.Context, k *podTimes) {
	r := podspec.NewKubelet(podspec.KubeletOptions{URL: "https://127.0.0.1:10250", SkipVerify: true, Interval: time.Hour})
	defer r.Close()
	for {
		ctx, cancel := context.WithCancel(ctx)
		err := r.Watch(ctx, func(u podspec.Update) { k.noteUpdate("/pods")(u); cancel() })
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			log.Printf("/pods: %v", err)
		}
		if !sleep.For(context.WithoutCancel(ctx), pollInterval) {
			return
		}
	}
}

// pollInterval is the pause between two polls of /pods, which limits the precision.
const pollInterval = 20 * time.Millisecond

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// measurePod creates a pod, waits until every source has it, and removes it.
func measurePod(ctx context.Context, k *podTimes, c *kube.Client, image, name string) (map[string]float64, error) {
	objects := c.Dynamic.Resource(pods).Namespace("default")
	made, err := objects.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"nodeName": c.Node, "hostNetwork": true, "automountServiceAccountToken": false, "enableServiceLinks": false,
			"terminationGracePeriodSeconds": int64(0), "tolerations": []any{map[string]any{"operator": "Exists"}},
			"containers": []any{map[string]any{"name": "c", "image": image, "imagePullPolicy": "Never"}},
		},
	}}, metav1.CreateOptions{})
	answered := time.Now()
	if err != nil {
		return nil, err
	}
	uid := string(made.GetUID())
	if err := k.until(ctx, name+" is known", func() bool { return k.allSourcesHave(uid) }); err != nil {
		return nil, err
	}
	out := map[string]float64{}
	k.mu.Lock()
	for source, at := range maps.All(k.at[uid]) {
		out[source] = float64(at.Sub(answered)) / float64(time.Millisecond)
	}
	k.mu.Unlock()
	now := int64(0)
	if err := objects.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		return nil, err
	}
	return out, k.until(ctx, name+" is gone", func() bool { return k.isGone(uid) })
}
