//go:build !windows

package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/fleet"
)

// metrics counts what a server commits and answers.
type metrics struct {
	registry *prometheus.Registry
	commits  prometheus.Counter
	events   prometheus.Counter
	prompts  prometheus.Counter
	turns    *prometheus.CounterVec
	attempts *prometheus.CounterVec
	ops      *prometheus.CounterVec
	unknown  *prometheus.CounterVec
	requests *prometheus.HistogramVec
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "dormouse", Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "dormouse", Name: name, Help: help}, labels)
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		commits:  counter("commits_total", "Commits to session logs."),
		events:   counter("events_total", "Events in those commits."),
		prompts:  counter("prompts_accepted_total", "Prompts made durable."),
		turns:    counters("turns_ended_total", "Turns ended, by outcome.", "outcome"),
		attempts: counters("attempts_ended_total", "Attempts that ended before their turn, by reason.", "reason"),
		ops:      counters("ops_finished_total", "Ops finished, by kind and outcome.", "kind", "outcome"),
		unknown:  counters("ops_unknown_total", "Ops whose outcome cannot be known, by kind.", "kind"),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "dormouse", Name: "http_request_seconds", Help: "Time to answer, by method, route and status.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"method", "route", "status"}),
	}
	m.registry.MustRegister(m.commits, m.events, m.prompts, m.turns, m.attempts, m.ops, m.unknown, m.requests,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// gauge exports a number that another package keeps.
func (m *metrics) gauge(name, help string, value func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Namespace: "dormouse", Name: name, Help: help},
		func() float64 { return float64(value()) }))
}

// counter exports a count that another package keeps.
func (m *metrics) counter(name, help string, value func() uint64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(
		prometheus.CounterOpts{Namespace: "dormouse", Name: name, Help: help},
		func() float64 { return float64(value()) }))
}

// fleet shows what happens among the servers of a shared store.
func (m *metrics) fleet(counts func() fleet.Counts) {
	for name, c := range map[string]struct {
		help  string
		value func(fleet.Counts) uint64
	}{
		"stale_appends_total":      {"Appends refused because somebody newer writes the session.", func(c fleet.Counts) uint64 { return c.Stale }},
		"sessions_taken_total":     {"Due sessions taken because no live server had them.", func(c fleet.Counts) uint64 { return c.Taken }},
		"requests_forwarded_total": {"Commands put to the server that owns the session.", func(c fleet.Counts) uint64 { return c.Forwarded }},
		"leases_lost_total":        {"Leases that ran out, stopping every session of this server.", func(c fleet.Counts) uint64 { return c.Lost }},
		"servers_ended_total":      {"Servers that held on after their lease and were ended by this one.", func(c fleet.Counts) uint64 { return c.Ended }},
	} {
		m.registry.MustRegister(prometheus.NewCounterFunc(
			prometheus.CounterOpts{Namespace: "dormouse", Name: name, Help: c.help},
			func() float64 { return float64(c.value(counts())) }))
	}
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// answered counts an answered request.
func (m *metrics) answered(method, route string, status int, took time.Duration) {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions:
	default:
		method = "other" // a client's invention must not become a series
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Observe(took.Seconds())
}

// committed counts what a commit has recorded.
func (m *metrics) committed(_ dormouse.SessionID, events []dormouse.Event) {
	m.commits.Inc()
	m.events.Add(float64(len(events)))
	for _, e := range events {
		switch e.Type { //nolint:exhaustive // the others are not counted
		case dormouse.PromptQueued:
			m.prompts.Inc()
		case dormouse.TurnEnded:
			m.turns.WithLabelValues(decoded[dormouse.TurnFact](e).Outcome).Inc()
		case dormouse.AttemptEnded:
			m.attempts.WithLabelValues(decoded[dormouse.Attempt](e).Reason).Inc()
		case dormouse.OpFinished:
			end := decoded[dormouse.OpEnd](e)
			m.ops.WithLabelValues(string(end.Kind), end.Outcome).Inc()
		case dormouse.OpUnknown:
			m.unknown.WithLabelValues(string(decoded[dormouse.OpEnd](e).Kind)).Inc()
		}
	}
}

// decoded is an event's payload; one that cannot be read counts as empty.
func decoded[T any](e dormouse.Event) (v T) {
	_ = json.Unmarshal(e.Payload, &v)
	return v
}
