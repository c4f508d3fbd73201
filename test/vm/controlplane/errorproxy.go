package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ErrorProxy is a proxy before an API server. After a call of Begin, it answers every request with the status code from
// that call. After a call of End, it passes requests on again.
type ErrorProxy struct {
	// Kubeconfig is the file of a kubeconfig that reaches the API server through the proxy.
	Kubeconfig string
	// Requests counts the requests to the proxy.
	Requests atomic.Int64

	status       atomic.Int64 // the status of all answers; 0 means that requests are passed on
	openRequests sync.Map     // the functions that cancel open requests, mainly watches
}

// reasons has the API server's reason for each status.
var reasons = map[int]string{
	http.StatusConflict: "Conflict", http.StatusGone: "Expired", http.StatusTooManyRequests: "TooManyRequests", http.StatusForbidden: "Forbidden",
	http.StatusInternalServerError: "InternalError", http.StatusServiceUnavailable: "ServiceUnavailable", http.StatusGatewayTimeout: "Timeout",
}

// NewErrorProxy starts a proxy that passes all requests on. Requests use the given token. If token is "", they use the
// administrator's token.
func NewErrorProxy(t testing.TB, p *Plane, token string) *ErrorProxy {
	t.Helper()
	target, err := url.Parse(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(target)
	if pass.Transport, err = rest.TransportFor(p.Config(Admin)); err != nil {
		t.Fatal(err)
	}
	pass.FlushInterval = -1
	e := &ErrorProxy{}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.Requests.Add(1)
		if code := int(e.status.Load()); code != 0 {
			if code == http.StatusTooManyRequests {
				w.Header().Set("Retry-After", "1")
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"planned","code":%d}`, reasons[code], code)
			return
		}
		ctx, end := context.WithCancel(r.Context())
		e.openRequests.Store(&end, end)
		defer e.openRequests.Delete(&end)
		pass.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(func() { proxy.CloseClientConnections(); proxy.Close() })
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: proxy.URL}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	k.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "x"
	e.Kubeconfig = filepath.Join(t.TempDir(), "proxy.kubeconfig")
	if err := clientcmd.WriteToFile(*k, e.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	return e
}

// Begin makes the proxy answer all further requests with the status code, and ends open requests.
func (e *ErrorProxy) Begin(code int) {
	e.status.Store(int64(code))
	e.openRequests.Range(func(_, end any) bool { end.(context.CancelFunc)(); return true })
}

// End makes the proxy pass requests on again.
func (e *ErrorProxy) End() { e.status.Store(0) }
