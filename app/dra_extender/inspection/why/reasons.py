"""The nodes that do not fit, by claim, request and reason, each with the nearest device, and what would help.

Where no single change helps, sets of changes are tried: after each change of a set the allocator is asked anew, and the next
change is one against what it says then: another request, another claim, or kube-scheduler's own filters.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final

import msgspec

from dra_extender.allocator.demand.demand import Demand, SearchableRequest
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.fewest_ends import irreducible
from dra_extender.inspection.near_names import names_there
from dra_extender.inspection.why.advice import advice, device_advice, pool_gaps
from dra_extender.inspection.why.cause import OF_DEVICES, SELECTED_DEVICES, rejections_by_closeness
from dra_extender.inspection.why.changes import (
    ClaimChanges,
    Place,
    ProposedChange,
    ProposedStep,
    advised,
    staying_pods,
    together,
)
from dra_extender.inspection.why.ends import HolderEnds
from dra_extender.inspection.why.further import FurtherReasons, unreached_pools
from dra_extender.inspection.why.names import existing_names
from dra_extender.inspection.why.nearest import MOST_NODES, NearestDevices, NodeDiagnosis, NoMatch, requested_options
from dra_extender.inspection.why.node_steps import NodeSteps
from dra_extender.inspection.why.report import (
    EXAMPLES,
    Branch,
    ConstraintValues,
    NearestDevice,
    NodeReason,
)
from dra_extender.inspection.why.request_edits import ReasonFacts, RequestEdits
from dra_extender.inspection.why.trials import Trials
from dra_extender.model.pod import Pod
from dra_extender.scheduling.claims.extended_need import subject_of
from dra_extender.scheduling.evaluation.filter_result import FilterResult, RejectionGroup

_GIVEN_UP: Final = OF_DEVICES | {Code.CLAIM_ON_OTHER_NODE}
_COUNTED: Final = frozenset({Code.COMBINATION, Code.IN_USE, Code.CONSTRAINT})
_MOST_VALUES: Final = 16
_MOST_EXPLAINED: Final = 24
_ABSENT: Final = ""
MOST_CHANGES: Final = 3
"""Changes of one set."""
SECONDS: Final = 2.0
"""Time after which no further set is begun."""
_MOST_NODES_OF_A_SET: Final = 16
_MOST_REASONS_OF_A_SET: Final = 4
_MOST_OF_A_REASON: Final = 6
_MOST_OF_AN_ALTERNATIVE: Final = 3
_MOST_CHANGED: Final = 3
"""Changes that are made to see what else stands in the way."""
_MOST_FURTHER_REQUESTS: Final = 3
"""How often the pod is evaluated again without what is known not to fit."""


_MOST_OF_A_WAY: Final = 2
_MOST_TRIED: Final = 6
"""Changes of one way that are tried for a gang."""
_OF_POOLS: Final = frozenset({Code.POOL_INCOMPLETE, Code.POOL_INVALID})
_CORRECTED: Final = frozenset(
    {
        Code.SELECTOR_INVALID,
        Code.SELECTOR_FAILED,
        Code.NO_MATCH,
        Code.NO_DEVICES,
        Code.CLAIM_MISSING,
        Code.CLAIM_NOT_CREATED,
        Code.CLAIM_DELETING,
        Code.CLASS_MISSING,
        Code.CLAIM_FULLY_RESERVED,
        Code.POD_GROUP_MISSING,
    }
)
"""What is wrong by itself, such as a misspelt name; where its correction was tried and helps, nothing more is advised."""


class Reasons:
    """The reasons against one pod, as the cluster is when they are made."""

    def __init__(
        self,
        view: ClusterView,
        pod: Pod,
        result: FilterResult,
        trials: Trials | None = None,
        *,
        whole: bool = False,
    ) -> None:
        """Find the reasons in a result, and evaluate the pod again for alternatives and requests of which it does not speak.

        `trials`: those of changes that have been made already; of such a pod only the result counts.  If they are for another pod,
        which was asked about, texts say whose claims they are about.
        """
        self._view = view
        self._pod = pod
        self.result = result
        self._nearest = NearestDevices(view)
        self._trials = trials or Trials(view, pod)
        self._claims = ClaimChanges(view, pod, names_pod=self._trials.pod.uid != pod.uid)
        self._budget = view.budget()
        self._edits = RequestEdits(view, pod, self._claims, self._nearest)
        self._ends = HolderEnds(view, pod, self._nearest, self._trials)
        self._further = FurtherReasons(view, pod, self._nearest)
        self._notes: dict[str, None] = {}
        self.known: list[ReasonFacts] = []
        nodes = defaultdict[str, list[str]](list)
        for node, text in result.texts.items():
            nodes[text].append(node)
        for group in rejections_by_closeness(view, pod, result):
            for facts in self._facts(group, nodes.get(group.rejection.summary, [group.example])):
                self.known.append(facts.with_further(self._further.sentences(facts, group.example)))
        if whole or not self._trials.applied_change.changes:
            self.known += list(self._of_other_alternatives())
            self.known += self._of_further_requests()
            self.known += self._once_changed()
            self._name_unreached_pools()

    @property
    def _nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(node for facts in self.known for node in facts.nodes))

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the limits that were reached, each as a sentence."""
        return tuple(note for note in (*self._notes, self._trials.note) if note)

    def corrections(self) -> Iterator[ProposedChange]:
        """Yield the changes of what is wrong by itself, such as a misspelt name."""
        yield from filter(None, map(self.correction, self.known))

    def branches(self) -> tuple[Branch, ...]:
        """Return the reasons by claim and request, the closest nodes first."""
        reasons_by_request = dict[Place, list[ReasonFacts]]()
        for facts in self.known:
            reasons_by_request.setdefault(facts.place, []).append(facts)
        return tuple(
            Branch(
                claim=claim,
                request=request,
                subject=self._subject(claim, request),
                wanted=next((facts.option.text for facts in reasons if facts.option is not None), ""),
                reasons=tuple(facts.reason for facts in reasons if not facts.after_correction),
                after_correction=tuple(facts.reason for facts in reasons if facts.after_correction),
            )
            for (claim, request), reasons in reasons_by_request.items()
        )

    def texts(self) -> Sequence[str]:
        """Return the reasons as sentences, what is in the way besides, and last what is once something is changed."""
        known = [facts for facts in self.known if not facts.after_correction]
        texts = [facts.rejection.text + existing_names(self._view, self._pod, facts.rejection) for facts in known]
        texts += [text for facts in known for text in facts.reason.further if text.startswith("also ")]
        texts += [facts.reason.text for facts in self.known if facts.after_correction]
        return list(dict.fromkeys(texts))

    def _subject(self, claim: str, request: str) -> str:
        subject = subject_of(self._pod, claim, request)
        if not self._claims.name or not claim:
            return subject
        return f"{subject or ', request '.join(filter(None, (f'claim {claim}', request)))} of pod {self._pod.name}"

    def steps(self) -> tuple[ProposedStep, ...]:
        """Return what would help, each text once, the smallest first; what is tried changes holds of the pod and of its gang."""
        steps: dict[str, ProposedStep] = {}
        for reason in self.known:
            sharing = sum(bool(facts.diagnoses) for facts in self.known) if self._trials.of_gang else 1
            with self._trials.shared(sharing):
                for step in self._steps_against(reason):
                    steps.setdefault(step.change.text, step)
        return tuple(sorted(steps.values(), key=lambda step: step.order))

    def helping_steps(self) -> Sequence[ProposedStep]:
        """Return the steps that help alone, otherwise the smallest set that helps."""
        alone = [step for step in self.steps() if step.helps]
        return alone or [*filter(None, [self.smallest_set()])]

    def smallest_set(self) -> ProposedStep | None:
        """Find a claim that the pod can do without, otherwise the smallest set of two or more changes that helps.

        Return None for gangs, and if the time or the trials are used up first.
        """
        end = self._view.monotonic + SECONDS
        if self._trials.of_gang:
            return None
        steps = (self._change_and_further(further, end) for further in range(1, MOST_CHANGES))
        found = self._without_a_claim() or next(filter(None, steps), None) or self._beside_advice()
        return found and self._with_fewest_ends(found)

    def _with_fewest_ends(self, step: ProposedStep) -> ProposedStep:
        """Return the step without the end of pods that its other changes make needless."""
        if len(step.change.ends) <= 1 or self._trials.applied_change.changes:
            return step

        def try_ending(ends: Sequence[str]) -> ProposedStep | None:
            return self._trials.try_change(step.change.ending_only(ends), self._nodes)

        def suffices(ends: Sequence[str]) -> bool:
            fewer = try_ending(ends)
            return fewer is not None and fewer.verified == step.verified

        ends = irreducible(step.change.ends, suffices)
        return step if len(ends) == len(step.change.ends) else try_ending(ends) or step

    def _steps_against(self, facts: ReasonFacts) -> Iterator[ProposedStep]:
        """Yield, for each way to help, the smallest change after which the pod fits on some of these nodes."""
        near = [facts.reason.nearest.node] if facts.reason.nearest is not None else []
        near += [candidate.node for candidate in facts.candidates]
        near += [facts.reason.count.node] if facts.reason.count is not None else []
        nodes, helped = tuple(dict.fromkeys((*near, *facts.nodes))), False
        for way in self._edits.against(facts):
            changes = list(islice(way, _MOST_TRIED)) if self._trials.of_gang else way
            step = self._trials.first_that_helps(changes, nodes)
            if step is None and self._trials.of_gang:
                step = self._trials.first_that_helps(map(self._claims.of_all_members, changes), nodes)
            if step is not None:
                helped = True
                yield step
        untried = self._advised(facts)
        of_selector = facts.rejection.code in (Code.SELECTOR_INVALID, Code.SELECTOR_FAILED)
        if not helped and (untried is None or of_selector) and (correction := self.correction(facts)) is not None:
            untried = ProposedStep(correction)
        if untried is None and (text := device_advice(self._view, facts, self._edits, self._nearest)):
            untried = advised(text)
        end = self._ends.against(facts, nodes)
        helped = helped or (end is not None and facts.rejection.code is Code.CLAIM_FULLY_RESERVED)
        if untried is not None and not (helped and facts.rejection.code in _CORRECTED):
            yield untried
        yield from map(advised, self._ends.awaited(facts))
        if end is not None:
            yield end

    def _advised(self, facts: ReasonFacts) -> ProposedStep | None:
        """Return what helps against a reason, without a trial; None where nothing can be said."""
        text = advice(self._view, self._pod, facts.rejection, facts.reason.pool)
        if not text:
            return None
        return advised(text, "" if facts.rejection.code in _OF_POOLS else self._claims.name)

    def _changes_against(self, facts: ReasonFacts) -> Iterator[ProposedChange]:
        """Yield the first changes of each other way to help, whether or not they are enough."""
        for way in self._edits.against(facts):
            for change in islice(way, _MOST_OF_A_WAY):
                if change is not None:
                    yield change

    def correction(self, facts: ReasonFacts) -> ProposedChange | None:
        """Return the change of what is wrong by itself, whatever devices are free; None if it is not clear what was meant."""
        return next(filter(None, self._edits.corrections(facts)), None)

    def _without_a_claim(self) -> ProposedStep | None:
        """Try the pod without one of the claims that do not fit."""
        names = dict.fromkeys(facts.rejection.claim for facts in self.known if facts.rejection.code in _GIVEN_UP)
        return self._trials.first_that_helps(map(self._claims.without_claim, names), self._nodes)

    def _beside_advice(self) -> ProposedStep | None:
        """Find what helps the rest of a pod that has claims or requests for which nothing can be tried, and advise both.

        Return None if the rest of the pod fits.
        """
        advised = {
            facts.place: step.change
            for facts in self.known
            if facts.rejection.claim and facts.rejection.code not in _GIVEN_UP and self.correction(facts) is None
            if (step := self._advised(facts)) is not None
        }
        if not advised:
            return None
        change = self._claims.without(advised)
        if change is None:
            # What helps beside devices.
            step = NodeSteps(self._view, self._pod, self._trials.applied_change).first_step_on(self._nodes)
        else:
            step = self._found_after(change, self._nodes, lambda rest: next(iter(rest.helping_steps()), None))
        return None if step is None else ProposedStep(together((*advised.values(), step.change)))

    def _change_and_further(self, further: int, end: float) -> ProposedStep | None:
        """Try a change against one reason with `further` more changes, each against what is left; prefer to end the fewest pods."""
        best: ProposedStep | None = None

        def find(rest: Reasons) -> ProposedStep | None:
            if further > 1:
                return rest._change_and_further(further - 1, end)
            return next((step for step in rest.steps() if step.helps), None)

        for changes_against in (self._changes_against, self._ends.of_nearest):
            for facts in self.known[:_MOST_REASONS_OF_A_SET]:
                for change in islice(changes_against(facts), _MOST_OF_A_REASON):
                    if self._trials.limit or self._view.monotonic > end:
                        return best
                    step = self._found_after(change, facts.nodes[:_MOST_NODES_OF_A_SET], find)
                    if step is not None and (change.harmful or not step.change.harmful):
                        return step
                    if step is not None and (best is None or self._ended(step) < self._ended(best)):
                        best = step
            if best is not None:
                return best
        return None

    def _found_after(
        self, change: ProposedChange, nodes: Sequence[str], find: Callable[["Reasons"], ProposedStep | None]
    ) -> ProposedStep | None:
        """Return what helps in addition to a change: beside devices, or what `find` finds in the reasons that are left."""
        with self._after(change, nodes) as rest:
            if rest.result.fits:
                # Something beside devices keeps the pod from the nodes that have them.
                return NodeSteps(self._view, self._pod, self._trials.applied_change).first_step_on(
                    tuple(rest.result.fits)
                )
            # Where the reasons are the same, what ended was not in the way.
            return None if change.ended and self._is_same_on(rest.result) else find(rest)

    def _ended(self, step: ProposedStep) -> int:
        return len(staying_pods(self._view, step.change.ended))

    def _is_same_on(self, result: FilterResult) -> bool:
        """Return whether another evaluation has the same texts and details for its nodes as this one."""
        return all(self.result.texts.get(node) == text for node, text in result.texts.items()) and all(
            rejection.detail == self.result.reasons.get(text, ("", rejection))[1].detail
            for text, (_, rejection) in result.reasons.items()
        )

    def _facts(self, group: RejectionGroup, nodes: Sequence[str]) -> Iterator[ReasonFacts]:
        facts = ReasonFacts(group.rejection, self._plain(group, nodes), self.result.demand, nodes)
        if facts.demand is None or facts.option is None:
            yield facts
        elif len(self.known) >= _MOST_EXPLAINED:
            self._notes[f"{_MOST_EXPLAINED} reasons have their nearest device, the others have none"] = None
            yield facts
        elif facts.rejection.code is Code.NO_MATCH:
            yield from self._unmatched(facts, facts.option)
        elif facts.rejection.code in SELECTED_DEVICES:
            yield self._accounted(group, facts.demand, facts.option, nodes)
        else:
            yield facts

    def _unmatched(self, facts: ReasonFacts, option: SearchableRequest) -> Iterator[ReasonFacts]:
        """Yield the nodes where the selectors mean no device, by what the nearest devices lack."""
        search, drivers = (
            NoMatch(self._view, option),
            {part.driver for part in self._view.ledger.slices.by_name.values()},
        )
        for misses in search.groups(facts.nodes):
            text = facts.rejection.code.value
            if misses.driver is not None:
                there = "" if misses.driver in drivers else names_there(misses.driver, drivers)
                text = f"no device of driver {misses.driver}{there}"
            reason = _reason(facts.rejection, misses.nodes, text)
            if misses.candidates:
                reason = msgspec.structs.replace(reason, nearest=search.described(misses.candidates[0]))
            yield facts._replace(reason=reason, nodes=misses.nodes, candidates=misses.candidates)
        self._notes[search.limit] = None

    def _name_unreached_pools(self) -> None:
        """Add the pools that no node can use to the first reason against each request."""
        places = set[Place]()
        for index, facts in enumerate(self.known):
            if facts.option is not None and facts.place not in places:
                places.add(facts.place)
                self.known[index] = facts.with_further(unreached_pools(self._view, facts.option))

    def _of_other_alternatives(self) -> Iterator[ReasonFacts]:
        """Yield the reasons against the alternatives of which the search did not speak, on the nodes where it did not."""
        alternatives = dict[Place, tuple[ProposedChange, list[str]]]()
        for facts in self.known:
            for name, change in self._claims.other_alternatives(facts.rejection.claim, facts.rejection.request):
                alternatives.setdefault((facts.rejection.claim, name), (change, []))[1].extend(facts.nodes)
        for place, (change, nodes) in alternatives.items():
            with self._after(change, nodes) as rest:
                against_alternative = (facts for facts in rest.known if facts.place == place)
                yield from islice(against_alternative, _MOST_OF_AN_ALTERNATIVE)

    def _of_further_requests(self) -> Sequence[ReasonFacts]:
        """Return the reasons against claims and requests of which the search did not speak: it ends with the first that fails."""
        places, further, last = set[Place](), [], self.known
        for _ in range(_MOST_FURTHER_REQUESTS):
            places |= {facts.place for facts in last}
            change = self._claims.without(places) if last else None
            if change is None:
                break
            with self._after(change, self._nodes) as rest:
                last = [facts for facts in rest.known if facts.place not in places]
            further += last[:_MOST_OF_AN_ALTERNATIVE]
        return further

    def _once_changed(self) -> Iterator[ReasonFacts]:
        """Yield the reasons that stay, or appear, when what is wrong by itself is corrected, and other requests are changed."""
        judged = {facts.place for facts in self.known if self.correction(facts) is None}
        judged_reasons = {(facts.place, facts.rejection.code) for facts in self.known}
        first_states = dict[tuple[Place, Code], Sequence[str]]()
        for facts, states in self.remaining_once_changed(self._nodes, ()):
            reason = facts.place, facts.rejection.code
            is_known = facts.place in judged or reason in judged_reasons
            if not is_known and first_states.setdefault(reason, states) == states:
                text = f"once {' and '.join(dict.fromkeys(states))}: {facts.reason.text}"
                changed = msgspec.structs.replace(facts.reason, text=text)
                # Without its demand, a reason is no ground for changes by themselves.
                yield facts._replace(demand=None, after_correction=True, reason=changed)

    def remaining_once_changed(
        self, nodes: Sequence[str], before: Sequence[str]
    ) -> Iterator[tuple[ReasonFacts, Sequence[str]]]:
        """Make changes one after the other, corrections first; yield the reasons that appear, and what is so by then.

        `before`: what is so already.
        """
        change = next(self.corrections(), None) or self._first_clearing()
        if change is None or len(before) == _MOST_CHANGED:
            return
        states = (*before, change.state)
        with self._after(change, nodes) as rest:
            further = list(rest.remaining_once_changed(nodes, states))
            found = [(facts, rest.correction(facts)) for facts in rest.known]
        correctable = any(correction is not None for _, correction in found)
        # Where more can be corrected, the other reasons are told as they are afterwards.
        yield from ((facts, states) for facts, correction in found if correction is not None or not correctable)
        yield from further

    def _first_clearing(self) -> ProposedChange | None:
        """Return the first change that harms nobody and after which a node rejects the pod for another of its requests."""
        demand = self.result.demand
        if demand is None or len(list(requested_options(demand))) <= 1:
            return None
        for facts in self.known[:_MOST_REASONS_OF_A_SET]:
            for change in islice(self._changes_against(facts), _MOST_OF_A_REASON):
                if not (change.harmful or change.drops):
                    with self._after(change, facts.nodes[:_MOST_NODES_OF_A_SET]) as rest:
                        if rest.result.fits:
                            # Nothing else is in the way.
                            break
                        if any(found.place != facts.place for found in rest.known):
                            return change
        return None

    @contextmanager
    def _after(self, change: ProposedChange, nodes: Sequence[str]) -> Iterator["Reasons"]:
        """Make a change inside the `with`, and yield the reasons against the pod alone, without its gang, as they are then."""
        with self._trials.within(change):
            pod = self._view.pod(self._pod.namespace, self._pod.name) or self._pod
            result = self._view.extender.evaluate_without_gang(pod, nodes)
            self._view.hold_again()
            yield Reasons(self._view, pod, result, self._trials)

    def _accounted(
        self, group: RejectionGroup, demand: Demand, option: SearchableRequest, nodes: Sequence[str]
    ) -> ReasonFacts:
        rejection = group.rejection
        diagnoses = self._nearest.diagnose(demand, (rejection.claim, rejection.request), nodes)
        if len(nodes) > MOST_NODES:
            self._notes[f"the nearest device of {len(nodes)} nodes was looked for on {len(diagnoses)} of them"] = None
        nearest = self._nearest.find(diagnoses, rejection.code, option.count)
        if nearest is None and rejection.device:
            nearest = self._of_rejection(group, diagnoses)
        counted = rejection.code in _COUNTED and option.count > 1
        reason = msgspec.structs.replace(
            _reason(rejection, nodes, rejection.code.value),
            nearest=nearest if rejection.code is not Code.COMBINATION else None,
            count=self._nearest.count(diagnoses, option.count) if counted else None,
        )
        facts = ReasonFacts(rejection, reason, demand, nodes, diagnoses=diagnoses)
        constraint = self._constraint(facts, group.example)
        return facts._replace(reason=msgspec.structs.replace(reason, constraint=constraint))

    def _of_rejection(self, group: RejectionGroup, diagnoses: Sequence[NodeDiagnosis]) -> NearestDevice | None:
        """Return the device that the search names, where what excludes it are the devices that were picked before it."""
        rejection = group.rejection
        for diagnosis in diagnoses:
            for device in diagnosis.devices:
                if diagnosis.node.name == group.example and device.device_id[2] == rejection.device:
                    return NearestDevice(
                        node=group.example,
                        device="/".join(device.device_id),
                        detail=rejection.detail,
                        holders=tuple(self._nearest.beside_picks(device.device_id, rejection)),
                    )
        return None

    def _constraint(self, facts: ReasonFacts, example: str) -> ConstraintValues | None:
        """Return the values that the devices which the request could have offer to the constraint that the search names."""
        diagnosis = next((diagnosis for diagnosis in facts.diagnoses if diagnosis.node.name == example), None)
        if facts.rejection.code is not Code.CONSTRAINT or diagnosis is None:
            return None
        constraints = facts.constraints
        named = [constraint for constraint in constraints if constraint.text() in facts.rejection.detail] or constraints
        if not named:
            return None
        # A device without the attribute is excluded by the constraint alone, before the search.
        combinations = Counter(
            tuple(
                sorted((kind, str(value)) for kind, value in self._nearest.values(device.device_id, named[0].attribute))
            )
            for device in diagnosis.devices
            if device.code in (None, Code.CONSTRAINT)
        )
        texts = Counter(", ".join(value for _, value in values) for values in combinations)
        counts = {
            ", ".join(
                _typed(*typed_value) if texts[", ".join(value for _, value in values)] > 1 else typed_value[1]
                for typed_value in values
            )
            or _ABSENT: count
            for values, count in combinations.items()
        }
        return ConstraintValues(
            constraint=named[0].text(), node=diagnosis.node.name, values=tuple(sorted(counts.items())[:_MOST_VALUES])
        )

    def _plain(self, group: RejectionGroup, nodes: Sequence[str]) -> NodeReason:
        rejection = group.rejection
        code, detail = rejection.code, rejection.detail
        text = f"{code.value}: {detail}" if detail and code is not Code.POOL_INCOMPLETE else code.value
        text += existing_names(self._view, self._pod, rejection)
        pools = self._view.pools_of(group.example)
        named = () if pools is None else [pool for pool in pools.unusable if pool.detail == detail]
        return msgspec.structs.replace(_reason(rejection, nodes, text), pool=next(iter(pool_gaps(named)), None))


def _typed(kind: str, text: str) -> str:
    """Return a value so that it differs from one of another type with the same text."""
    return f'"{text}"' if kind == "str" else f"version {text}" if kind == "ver" else text


def _reason(rejection: Rejection, nodes: Sequence[str], text: str) -> NodeReason:
    return NodeReason(nodes=len(nodes), examples=tuple(nodes[:EXAMPLES]), code=rejection.code.name, text=text)
