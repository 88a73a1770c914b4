"""What all settings have in common: they are strict, closed and frozen."""

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

T = TypeVar("T")


class Section(BaseModel):
    """A mapping of the config: no key but its own, no value of another type."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def _distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    if len(set(values)) < len(values):
        raise ValueError("has non-unique elements")
    return values


def named(value: Any) -> Any:
    """A bare name as a mapping: the settings of that name with their defaults."""
    return {"name": value} if isinstance(value, str) else value


Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Part = Annotated[float, Field(gt=0, le=1)]  # of an area
Decay = Annotated[float, Field(ge=0, lt=1)]
Distinct = Annotated[tuple[T, ...], AfterValidator(_distinct), Field(json_schema_extra={"uniqueItems": True})]
ByName = BeforeValidator(named)
