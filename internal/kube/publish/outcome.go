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

// updateRow changes the row for status.
func (p *Publisher) updateRow(change func(*api.ClusterPart)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.row)
}

// setState sets the state of the report in status. It logs a reason that differs from the
// last one.
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
		p.log.Info("the agent writes a report again", logkey.Kind, p.report.Kind)
	default:
		p.log.Warn("the agent cannot bring a report up to date", logkey.Kind, p.report.Kind, logkey.Reason, state, logkey.Err, why)
	}
}

// setUpToDate sets the state of an object that is up to date, and notes which fields the object still lacks.
func (p *Publisher) setUpToDate(state string) {
	p.setState(state, nil)
	if p.report.Note != nil {
		note := p.report.Note()
		p.updateRow(func(r *api.ClusterPart) { r.Note = note })
	}
}

// noteFailure notes a failed request, and returns the pause after it: the pause that the server requests, or twice the
// last one.
func (p *Publisher) noteFailure(what string, err error) (next time.Duration, wakes bool) {
	p.failures++
	p.updateRow(func(r *api.ClusterPart) { r.Failed++ })
	next = min(p.pace.Retry<<min(p.failures-1, 16), p.pace.CheckInterval)
	if seconds, asked := apierrors.SuggestsClientDelay(err); asked {
		next = max(next, time.Duration(seconds)*time.Second)
	}
	why := fmt.Errorf("%s: %w", what, err)
	if apierrors.IsForbidden(err) {
		why = fmt.Errorf("%w; give the agent's account the chart's ClusterRole, or disable the report", why)
	}
	p.setState("not written", why)
	return jittered(next), false
}

// noteMissingKind notes that the server does not have the kind, and lists the versions that it has.
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
		p.setState("not written", fmt.Errorf("the group %s has no %s; install its CustomResourceDefinition, or disable the report", r.GroupVersion(), r.Resource))
	default:
		p.setState("not written", fmt.Errorf("the CustomResourceDefinition %s.%s serves %s, and %s is needed; install a newer CustomResourceDefinition", r.Resource, r.Group, strings.Join(versions, ", "), r.Version))
	}
	return jittered(p.pace.CheckInterval), false
}

// servedVersions lists the versions of the report's group; none, without an error, for an
// unknown group.
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

// noteCeded notes that another program writes the object.
func (p *Publisher) noteCeded(other string) (next time.Duration, wakes bool) {
	p.lastWrite, p.failures = nil, 0
	const what = "it writes the object %s; if the agent should write it, stop that program and delete the object"
	before := p.Row().LeftTo
	p.setState("left to "+other, nil)
	p.updateRow(func(r *api.ClusterPart) { r.LeftTo, r.Note = other, fmt.Sprintf(what, p.client.Node) })
	if before != other {
		p.log.Info("the agent leaves an object to another program", logkey.Kind, p.report.Kind, logkey.Owner, other)
	}
	return jittered(p.pace.CheckInterval), false
}

// jittered returns a pause of about the same length, so that the agents of many nodes do not send requests at the
// same time.
func jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }
