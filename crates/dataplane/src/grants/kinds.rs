//! What grants look like from outside, and how records are read.

use std::net::IpAddr;
use std::sync::atomic::AtomicU64;

use sluice_abi::{
    GRANT_BY_OPERATOR, GRANT_FOREVER, GRANT_WAS_EXPIRED, GRANT_WAS_IDLE, GRANT_WAS_REVOKED, Grant,
};

use crate::error::Refused;
use crate::records::words_address;

/// What a grant is for: source and service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantKey {
    /// Network address of the prefix.
    pub source: IpAddr,
    /// Of the prefix; host bits are clear.
    pub length: u8,
    /// Id of the service.
    pub service: u16,
}

impl GrantKey {
    pub(super) fn is_host(&self) -> bool {
        self.length == if self.source.is_ipv4() { 32 } else { 128 }
    }
}

/// A grant that somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantSpec {
    /// Source and service.
    pub key: GrantKey,
    /// Whom reports and logs name; no packet is compared with it.
    pub user: String,
    /// Seconds; None = no limit.
    pub idle_s: Option<u32>,
    /// Seconds; None = no limit.
    pub absolute_s: Option<u32>,
}

/// Why a grant ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Somebody took it back, or the configuration has it no more.
    Revoked,
    /// Its absolute limit was reached.
    Expired,
    /// No packet of its source came for as long as its idle limit.
    Idle,
}

/// A grant as its record has it; times in jiffies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRecord {
    /// Names this grant for as long as it lives; a later one in the same record has another.
    pub handle: u32,
    /// Source and service.
    pub key: GrantKey,
    /// Whom reports and logs name.
    pub user: String,
    /// It stands in the configuration, whoever renewed it since; others were made by API.
    pub by_configuration: bool,
    /// When it was given.
    pub created: u64,
    /// None = never.
    pub deadline: Option<u64>,
    /// None = never; counted from `last_use`.
    pub idle: Option<u32>,
    /// Last packet of its source.
    pub last_use: u64,
    /// How many were opened with it.
    pub sessions: u32,
    /// Why it holds no more, whoever has noticed.
    pub ended: Option<Ended>,
}

/// Which grants to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pick {
    /// Every one.
    All,
    /// The one with this handle.
    Handle(u32),
    /// Of this user.
    User(String),
    /// For this service, by id.
    Service(u16),
    /// For exactly this prefix: address and length.
    Source(IpAddr, u8),
    /// Services that are none of these any more.
    ServicesBut(Vec<u16>),
}

/// What became of one [`GrantSpec`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// Names the grant from now on.
    pub handle: u32,
    /// It was there already, as this, and got these limits, counted from now.
    pub renewed: Option<Former>,
}

/// What a renewal has changed, for taking it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Former {
    pub(super) deadline: u64,
    pub(super) created: u64,
    pub(super) last_use: u64,
    pub(super) idle: u32,
    pub(super) origin: u8,
    pub(super) asked: u16,
    /// When it was renewed, which is its last use from then on.
    pub(super) at: u64,
}

impl Former {
    pub(super) fn of(record: &Grant, at: u64) -> Self {
        let Grant { deadline, created, last_use, idle, origin, asked, .. } = *record;
        Self { deadline, created, last_use, idle, origin, asked, at }
    }
}

/// A change of the configuration's own grants.
#[derive(Debug, Default)]
pub struct Reconciled {
    /// Those that are new.
    pub given: Vec<GrantRecord>,
    /// The same, for taking them back.
    pub handed: Vec<Given>,
    /// Those that the configuration has no more.
    pub ended: Vec<GrantRecord>,
    /// Why others that it has are not given.
    pub refused: Vec<Refused>,
}

/// Counts since this process began.
#[derive(Debug, Default)]
pub struct GrantTotals {
    pub given: AtomicU64,
    pub renewed: AtomicU64,
    pub revoked: AtomicU64,
    pub expired: AtomicU64,
    pub idle: AtomicU64,
    /// That found no room.
    pub refused_full: AtomicU64,
}

impl GrantTotals {
    pub(super) fn ended(&self, why: Ended) -> &AtomicU64 {
        match why {
            Ended::Revoked => &self.revoked,
            Ended::Expired => &self.expired,
            Ended::Idle => &self.idle,
        }
    }
}

pub(super) fn family(address: IpAddr) -> usize {
    usize::from(address.is_ipv6())
}

pub(super) fn is_prefix(address: IpAddr, length: u8) -> bool {
    match address {
        IpAddr::V4(address) => {
            length <= 32 && u32::from(address) & u32::MAX.checked_shr(length.into()).unwrap_or(0) == 0
        }
        IpAddr::V6(address) => {
            length <= 128 && u128::from(address) & u128::MAX.checked_shr(length.into()).unwrap_or(0) == 0
        }
    }
}

pub(super) fn key_of(record: &Grant) -> GrantKey {
    GrantKey {
        source: words_address(record.family, record.be_addr),
        length: record.length,
        service: record.service,
    }
}

/// As programs judge it, of a record that somebody has.
pub(super) fn ended(record: &Grant, now: u64) -> Option<Ended> {
    if record.handle == 0 {
        Some(match u32::from(record.ended) {
            GRANT_WAS_EXPIRED => Ended::Expired,
            GRANT_WAS_IDLE => Ended::Idle,
            _ => Ended::Revoked,
        })
    } else if now >= record.deadline {
        Some(Ended::Expired)
    } else if record.idle != 0 && now.saturating_sub(record.last_use) > u64::from(record.idle) {
        Some(Ended::Idle)
    } else {
        None
    }
}

/// As `ended` of a record has it.
pub(super) fn mark_of(why: Ended) -> u8 {
    let mark = match why {
        Ended::Revoked => GRANT_WAS_REVOKED,
        Ended::Expired => GRANT_WAS_EXPIRED,
        Ended::Idle => GRANT_WAS_IDLE,
    };
    mark as u8
}

/// It is the configuration's own, whoever has renewed it.
pub(super) fn is_configured(record: &Grant) -> bool {
    u32::from(record.origin) != GRANT_BY_OPERATOR
}

/// In jiffies; None = for good.
pub(super) fn lifetime(record: &Grant) -> Option<u64> {
    (record.deadline != GRANT_FOREVER).then(|| record.deadline.saturating_sub(record.created))
}

/// Of limits in jiffies, as `asked` of a record has them.
pub(super) fn digest(lifetime: Option<u64>, idle: u32) -> u16 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let word = lifetime.unwrap_or(GRANT_FOREVER).wrapping_mul(ODD) ^ u64::from(idle);
    (word.wrapping_mul(ODD) >> 48) as u16
}
