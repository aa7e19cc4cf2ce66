"""Tickets are good once, for a while, and few."""

from app.tickets import MAX_TICKETS_OF_A_KEY, TICKET_S, Tickets
from tests.support.clock import FakeClock


def test_a_ticket_is_good_once():
    tickets = Tickets(FakeClock())
    secret = tickets.issue("key_1", "ann")

    ticket = tickets.redeem(secret)

    assert ticket is not None
    assert (ticket.key, ticket.owner) == ("key_1", "ann")
    assert tickets.redeem(secret) is None
    assert tickets.redeem("wst_made-up\udcff") is None


def test_a_ticket_ends_by_itself():
    clock = FakeClock()
    tickets = Tickets(clock)
    secret = tickets.issue("key_1", "ann")

    clock.advance(TICKET_S)

    assert tickets.redeem(secret) is None


def test_unused_tickets_are_forgotten():
    clock = FakeClock()
    tickets = Tickets(clock)
    for n in range(50):
        tickets.issue(f"key_{n}", "ann")

    clock.advance(TICKET_S)
    tickets.issue("key_0", "ann")

    assert len(tickets) == 1


def test_a_key_has_a_bounded_number_and_loses_its_oldest():
    tickets = Tickets(FakeClock())
    other = tickets.issue("key_2", "bob")
    first = tickets.issue("key_1", "ann")
    rest = [tickets.issue("key_1", "ann") for _ in range(MAX_TICKETS_OF_A_KEY)]

    assert len(tickets) == MAX_TICKETS_OF_A_KEY + 1
    assert tickets.redeem(first) is None
    assert all(tickets.redeem(secret) for secret in [*rest, other])


def test_used_tickets_take_no_place():
    tickets = Tickets(FakeClock())
    for _ in range(5 * MAX_TICKETS_OF_A_KEY):
        assert tickets.redeem(tickets.issue("key_1", "ann")) is not None

    assert len(tickets) == 0
