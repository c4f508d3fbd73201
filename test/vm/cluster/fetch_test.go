package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/podspec"
	"github.com/trimtab/trimtab/test/vm/controlplane"
)

// fetchArm and fetchFile are a child's environment variables with its arm and its kubeconfig.
const (
	fetchArm  = "TRIMTAB_FETCH_ARM"
	fetchFile = "TRIMTAB_FETCH_KUBECONFIG"
)

// fetchArms are the compared ways to fetch the pods of node n1. Each makes a client and returns the number of pods. The
// cheapest, "floor", reads the bytes of one list and does not decode them.
var fetchArms = map[string]func(context.Context, string) (int, error){
	"floor": fetchBytes, "ours": fetchOurs, "typed informer": fetchTyped, "dynamic informer": fetchDynamic,
}

func TestMain(m *testing.M) {
	if arm := os.Getenv(fetchArm); arm != "" {
		if err := fetchChild(arm, os.Getenv(fetchFile)); err != nil {
			fmt.Fprintln(os.Stderr, arm+":", err)
			os.Exit(1)
		}
		return
	}
	if file := os.Getenv(memoryFile); file != "" {
		if err := memoryChild(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// fetched has the times of a child: of its first fetch, including reading the kubeconfig, and of later ones over the
// same connection.
type fetched struct {
	Pods int
	Cold time.Duration
	Warm []time.Duration
}

func fetchChild(arm, file string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var f fetched
	for i := range 11 {
		begun := time.Now()
		pods, err := fetchArms[arm](ctx, file)
		took := time.Since(begun)
		if err != nil {
			return err
		}
		if i == 0 {
			f.Pods, f.Cold = pods, took
		} else {
			f.Warm = append(f.Warm, took)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}

// BenchmarkFetch measures how long it takes to fetch the pods of a node from the API server, in new processes (cold)
// and again over their connection (warm).
func BenchmarkFetch(b *testing.B) {
	p := controlplane.Start(b, "--disable-admission-plugins=ServiceAccount")
	file := p.Kubeconfig("admin", controlplane.Admin+"-token")
	admin := p.Dynamic(controlplane.Admin).Resource(podsOf).Namespace("default")
	there := 0
	for _, pods := range []int{30, 300} {
		for ; there < pods; there++ {
			if _, err := admin.Create(b.Context(), podOn("n1", fmt.Sprint("pod-", there)), metav1.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			cold, warm := map[string][]time.Duration{}, map[string][]time.Duration{}
			order := []string{"floor", "ours", "typed informer", "dynamic informer"}
			for b.Loop() {
				for _, arm := range order {
					f := fetchIn(b, arm, file)
					if arm != "floor" && f.Pods != pods {
						b.Fatalf("%s has %d pods, want %d", arm, f.Pods, pods)
					}
					cold[arm], warm[arm] = append(cold[arm], f.Cold), append(warm[arm], f.Warm...)
				}
				slices.Reverse(order)
			}
			for _, arm := range order {
				name := strings.ReplaceAll(arm, " ", "-")
				b.ReportMetric(median(cold[arm]), name+"-cold-ms")
				b.ReportMetric(median(warm[arm]), name+"-warm-ms")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2]) / float64(time.Millisecond)
}

func fetchIn(b *testing.B, arm, file string) fetched {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fetchArm+"="+arm, fetchFile+"="+file)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%s: %v", arm, err)
	}
	var f fetched
	if err := json.Unmarshal(out, &f); err != nil {
		b.Fatal(err)
	}
	return f
}

func connected(file string) (*kube.Client, error) {
	return kube.Connect(kube.Options{Kubeconfig: file, Node: "n1", Version: "bench"})
}

func fetchBytes(ctx context.Context, file string) (int, error) {
	c, err := connected(file)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Server+"/api/v1/pods?resourceVersion=0&fieldSelector="+url.QueryEscape("spec.nodeName=n1"), http.NoBody)
	if err != nil {
		return 0, err
	}
	res, err := c.HTTP.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return 0, err
}

func fetchOurs(ctx context.Context, file string) (int, error) {
	c, err := connected(file)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	known := -1
	err = podspec.NewAPIServer(podspec.APIServerOptions{URL: c.Server, Client: c.HTTP, Node: "n1"}).Watch(ctx, func(u podspec.Update) {
		if u.Full {
			known = len(u.All)
			cancel()
		}
	})
	if known >= 0 && errors.Is(err, context.Canceled) {
		return known, nil
	}
	return 0, err
}

func ofNode(o *metav1.ListOptions) {
	o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", "n1").String()
}

// synced runs an informer until it has synced.
func synced(ctx context.Context, i cache.SharedIndexInformer) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go i.RunWithContext(ctx)
	select {
	case <-i.HasSyncedChecker().Done():
	case <-ctx.Done():
	}
	return len(i.GetStore().List()), ctx.Err()
}

func fetchTyped(ctx context.Context, file string) (int, error) {
	c, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return 0, err
	}
	set, err := kubernetes.NewForConfig(c)
	if err != nil {
		return 0, err
	}
	f := informers.NewSharedInformerFactoryWithOptions(set, 0, informers.WithTweakListOptions(ofNode))
	return synced(ctx, f.Core().V1().Pods().Informer())
}

func fetchDynamic(ctx context.Context, file string) (int, error) {
	c, err := connected(file)
	if err != nil {
		return 0, err
	}
	f := dynamicinformer.NewFilteredDynamicSharedInformerFactory(c.Dynamic, 0, "", ofNode)
	return synced(ctx, f.ForResource(podsOf).Informer())
}
