// Command probe measures how soon each source of pods, such as the Pods API or NRI, knows a new pod. It runs on a node.
// It creates pods for this node at the API server. For each pod it prints the times in ms from the API server's answer
// until each source had the pod.
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

// podTimes has the times at which each source first had each pod.
type podTimes struct {
	mu    sync.Mutex
	at    map[string]map[string]time.Time // by UID and source
	now   map[string]map[string]bool      // the UIDs of the pods that a source has now, by source
	wakes chan struct{}                   // receives a value when at has changed
}

// recordTime stores the time at which a source has a pod, if it is the first time.
func (k *podTimes) recordTime(source, uid string) {
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

// RunPodSandbox stores the time at which the runtime sends the NRI event RunPodSandbox for a pod.
func (k *podTimes) RunPodSandbox(_ context.Context, p *api.PodSandbox) error { //nolint:unparam // the signature is NRI's
	k.recordTime("NRI", p.GetUid())
	return nil
}

// updateRecorder returns a function that stores the pods in an update of a source.
func (k *podTimes) updateRecorder(source string) func(podspec.Update) {
	return func(u podspec.Update) {
		for uid := range u.All {
			k.recordTime(source, uid)
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

// sources are the names of the sources, in the order of the columns in the benchmark's table.
var sources = []string{"API server", "Pods API", "/pods", "NRI"}

// allSourcesHave reports whether every source has had a pod.
func (k *podTimes) allSourcesHave(uid string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.at[uid]) == len(sources)
}

// isGone reports whether neither the kubelet's /pods nor the API server has a pod any more.
func (k *podTimes) isGone(uid string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.now["/pods"][uid] && !k.now["API server"][uid]
}

// until waits until done returns true. The parameter what is the condition in words, for the error.
func (k *podTimes) until(ctx context.Context, what string, done func() bool) error {
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			k.mu.Lock()
			defer k.mu.Unlock()
			return fmt.Errorf("wait until %s: %w; the times at which sources had pods: %v", what, ctx.Err(), k.at)
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

// run measures as many pods as the last argument says, and prints their times as JSON.
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
			if err := r.Watch(ctx, k.updateRecorder(source)); err != nil && ctx.Err() == nil {
				log.Printf("watch the source %s: %v", source, err)
				sleep.For(ctx, time.Second)
			}
		}
	}()
}

// poll requests /pods from the kubelet again and again, and stores the pods in the answers.
func poll(ctx context.Context, k *podTimes) {
	r := podspec.NewKubelet(podspec.KubeletOptions{URL: "https://127.0.0.1:10250", SkipVerify: true, Interval: time.Hour})
	defer r.Close()
	for {
		firstUpdate, cancel := context.WithCancel(ctx)
		err := r.Watch(firstUpdate, func(u podspec.Update) { k.updateRecorder("/pods")(u); cancel() })
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			log.Printf("request /pods from the kubelet: %v", err)
		}
		if !sleep.For(ctx, pollInterval) {
			return
		}
	}
}

// pollInterval is the pause between two requests of /pods. It limits the precision of the times for /pods.
const pollInterval = 20 * time.Millisecond

// podsResource is the resource pods of the Kubernetes API.
var podsResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// measurePod creates a pod, waits until every source has the pod, and removes it. It returns the time in ms from the
// API server's answer until each source had the pod.
func measurePod(ctx context.Context, k *podTimes, c *kube.Client, image, name string) (map[string]float64, error) {
	objects := c.Dynamic.Resource(podsResource).Namespace("default")
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
