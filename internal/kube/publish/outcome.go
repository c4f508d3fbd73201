package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// updateRow changes the report's row for status.
func (p *Publisher) updateRow(change func(*api.ClusterPart)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.row)
}

// setState sets the state of the report, which the status shows in a row. why is the reason why the report is not up to
// date; nil if the report is up to date. If the reason has changed, setState logs it.
func (p *Publisher) setState(state string, why error) {
	p.mu.Lock()
	before := p.row.Error
	p.row.State, p.row.Error, p.row.LeftTo, p.row.Note = state, "", "", ""
	if why != nil {
		p.row.Error = why.Error()
	}
	now := p.row.Error
	p.mu.Unlock()
	switch now {
	case before:
	case "":
		p.log.Info("the agent can again write an object to the API server", logkey.Kind, p.report.Kind)
	default:
		p.log.Warn("the agent cannot write an object to the API server", logkey.Kind, p.report.Kind, logkey.Reason, state, logkey.Err, why)
	}
}

// setUpToDate sets the state for an object that is up to date. The row also gets the text of Report.Note.
func (p *Publisher) setUpToDate(state string) {
	p.setState(state, nil)
	if p.report.Note != nil {
		note := p.report.Note()
		p.updateRow(func(r *api.ClusterPart) { r.Note = note })
	}
}

// noteFailure notes a failed request. It returns the pause before the next request: the pause that the server requests,
// or twice the last pause. action says what failed.
func (p *Publisher) noteFailure(action string, err error) (next time.Duration, wakes bool) {
	p.failures++
	p.updateRow(func(r *api.ClusterPart) { r.Failed++ })
	next = min(p.pace.Retry<<min(p.failures-1, 16), p.pace.CheckInterval)
	if seconds, asked := apierrors.SuggestsClientDelay(err); asked {
		next = max(next, time.Duration(seconds)*time.Second)
	}
	why := fmt.Errorf("%s: %w", action, err)
	if apierrors.IsForbidden(err) {
		why = fmt.Errorf("%w; give the agent's account the chart's ClusterRole, or disable the report", why)
	}
	p.setState("not written", why)
	return jittered(next), false
}

// noteMissingKind notes that the server does not have the kind in the report's version. The reason in the row names the
// versions that the server has.
func (p *Publisher) noteMissingKind(ctx context.Context) (next time.Duration, wakes bool) {
	p.lastWrite, p.failures = nil, 0
	r := p.report.Resource
	versions, err := p.servedVersions(ctx)
	switch {
	case err != nil:
		return p.noteFailure("find the versions of "+r.Group, err)
	case len(versions) == 0:
		p.setState("not written", fmt.Errorf("the cluster has no CustomResourceDefinition %s.%s; install it, or disable the report", r.Resource, r.Group))
	case slices.Contains(versions, r.Version):
		p.setState("not written", fmt.Errorf("the API version %s has no resource %s; install the resource's CustomResourceDefinition, or disable the report", r.GroupVersion(), r.Resource))
	default:
		p.setState("not written", fmt.Errorf("the CustomResourceDefinition %s.%s serves only %s, but the agent needs %s; install a newer CustomResourceDefinition", r.Resource, r.Group, strings.Join(versions, ", "), r.Version))
	}
	return jittered(p.pace.CheckInterval), false
}

// servedVersions lists the versions of the report's API group that the server has. For an unknown group, it returns no
// version and no error.
func (p *Publisher) servedVersions(ctx context.Context) ([]string, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.client.Server, "/")+"/apis/"+p.report.Resource.Group, nil)
	if err != nil {
		return nil, err
	}
	q.Header.Set("Accept", "application/json")
	answer, err := p.client.HTTP.Do(q)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusNotFound:
		return nil, nil
	case http.StatusOK:
	default:
		return nil, errors.New(answer.Status)
	}
	var group metav1.APIGroup
	const most = 1 << 20
	if err := json.NewDecoder(http.MaxBytesReader(nil, answer.Body, most)).Decode(&group); err != nil {
		return nil, err
	}
	var out []string
	for _, v := range group.Versions {
		out = append(out, v.Version)
	}
	return out, nil
}

// noteCeded notes that another program owns the object, so the agent does not write it.
func (p *Publisher) noteCeded(other string) (next time.Duration, wakes bool) {
	p.lastWrite, p.failures = nil, 0
	const note = "%s writes the object %s; if the agent should write the object, stop that program and delete the object"
	before := p.Row().LeftTo
	p.setState("left to "+other, nil)
	p.updateRow(func(r *api.ClusterPart) { r.LeftTo, r.Note = other, fmt.Sprintf(note, other, p.client.Node) })
	if before != other {
		p.log.Info("the agent leaves an object to another program", logkey.Kind, p.report.Kind, logkey.Owner, other)
	}
	return jittered(p.pace.CheckInterval), false
}

// jittered returns a random pause between 0.9 and 1.1 times d, so that the agents of many nodes do not send requests at
// the same time.
func jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }
